"""A simulated machine for the bench: scripted acceptance, published costs (fakes/machine.py), its own clock. (pure)

A prompt is a row of coin flips: does the draft say the same token there? Kinds differ in the odds, and prompts of a
kind do too. An answer's rounds follow from the flips alone; seconds are noisy.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import exp, log
from statistics import fmean

from pydantic import TypeAdapter

from fakes.machine import BY_NAME, Machine
from specdec_cli.apps.bench.estimate import Estimate
from specdec_cli.apps.bench.result import BenchResult, BenchSettings, Condition, Contender, Environment, Sample
from specdec_cli.apps.bench.sweep import Bench, BenchRequest, Cancelled
from specdec_cli.core.progress import unseen
from specdec_cli.measure.prompts import PromptId, SamplePrompt
from specdec_cli.pairs.pair import Pair
from specdec_cli.system.machine import MachineState

# Log seconds that `auto` spends on finding its K.
AUTO_COST = 0.04
DRAFT = Contender("model", "mlx-community/Qwen3-0.6B-4bit")
HERE = Condition(Contender("model", "org/draft"), 0.0)
KINDS = {"code": 0.86, "chat": 0.68, "prose": 0.52, "summary": 0.74, "json": 0.9, "edit": 0.93, "reasoning": 0.71}
ENVIRONMENT = Environment(
    *("Apple M4 Pro", "metal", "macOS 26.1", 48 * 2**30, 14, "bfloat16", {"target": ("KVCache",)}),
    versions={"specdec": "0.1.0", "mlx": "0.32.0", "mlx-lm": "0.32.2"},
    date="2026-01-31",
)
SETTINGS = BenchSettings(
    *("qwen3-8b", True, "mlx-community/Qwen3-8B-4bit", (), (*range(9), "auto"), (0.0,), "auto", (), "", 96),
    *("natural", False, 240.0, 0.0, 3),
)


def read_back(text: str) -> BenchResult:
    """The result in an exported JSON file."""
    values = json.loads(text)
    assert values.pop("specdec") == "bench"
    return TypeAdapter(BenchResult).validate_python(values)


def estimate(k, measured, condition=HERE):
    """By hand: log speed-ups of one arm."""
    return Estimate(condition.arm(k), {PromptId("code", str(at)): value for at, value in enumerate(measured)})


@dataclass(frozen=True)
class Texts:
    """Odds of agreement by kind; those of a prompt scatter around them."""

    kinds: dict[str, float]
    tokens: int = 96

    def prompts(self, each: int, seed: int) -> list[SamplePrompt]:
        """The text of a simulated prompt is its odds and its seed."""
        luck = random.Random(seed)
        return [
            SamplePrompt(kind, str(i), f"{self.draw(kind, luck)} {luck.random()}")
            for kind in self.kinds
            for i in range(each)
        ]

    def draw(self, kind: str, luck: random.Random) -> float:
        return min(max(luck.gauss(self.kinds[kind], 0.06), 0.0), 0.995)


@lru_cache(maxsize=4096)
def runs(text: str, tokens: int, deepest: int, better: float = 0.0) -> tuple[int, ...]:
    """[t] = how many tokens from t on the draft would say as well."""
    odds, seed = text.split()
    luck = random.Random(seed)
    agrees = [luck.random() < min(float(odds) + better, 0.995) for _ in range(tokens)]
    found = [0] * (tokens + 1)
    for t in reversed(range(tokens)):
        found[t] = min(found[t + 1] + 1, deepest) if agrees[t] else 0
    return tuple(found[:tokens])


@dataclass
class Simulated:
    """Implements sweep.Machine. `slower` adds to log seconds of an arm beyond what its costs say; `better` adds to the
    odds of a contender; `heat` slows everything down over the clock's seconds. `auto` is the K that `auto` finds."""

    machine: Machine
    tokens: int = 96
    seed: int = 0
    noise: float = 0.03
    slower: float = 0.02
    heat: float = 0.0
    better: dict[str, float] = field(default_factory=dict)
    cancel_after: float = float("inf")
    auto: int = 4
    prefill_steps: float = 4.0
    contenders: tuple[Contender, ...] = (HERE.contender,)
    fit: int = 1000
    slept: float = 0.0
    now: float = 0.0
    environment = ENVIRONMENT

    def __post_init__(self) -> None:
        self._luck = random.Random(self.seed)

    def fitting(self, prompts, tokens):
        return list(prompts)[: self.fit]

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def _spend(self, steps: float) -> float:
        seconds = steps * self.machine.plain_seconds * exp(self._luck.gauss(0, self.noise) + self.heat * self.now)
        self.now += seconds
        if self.now > self.cancel_after:
            raise Cancelled
        return seconds

    def steps(self, arm, prompt, tokens) -> tuple[float, list[tuple[int, int]]]:
        """Plain steps behind the first token, and (drafted, accepted) of every round."""
        k = self.auto if arm.k == "auto" else arm.k
        if k == 0:
            return tokens - 1.0, [(0, 0)] * (tokens - 1)
        found, rounds, at = runs(prompt.text, tokens, 8, self.better.get(arm.contender.name, 0.0)), [], 1
        while at < tokens:
            drafted = min(k, tokens - at - 1)
            rounds.append((drafted, min(drafted, found[at])))
            at += rounds[-1][1] + 1
        cost = sum(d * self.machine.draft_step + self.machine.rows(d + 1) if d else 1.0 for d, _ in rounds)
        return cost * exp(self.slower + AUTO_COST * (arm.k == "auto")), rounds

    def answer(self, arm, prompt, max_tokens):
        tokens = min(self.tokens, max_tokens)
        steps, rounds = self.steps(arm, prompt, tokens)
        prefill, seconds = self._spend(self.prefill_steps), self._spend(steps)
        full = arm.k != "auto" and arm.k and any(d == arm.k for d, _ in rounds)
        step = seconds / steps
        return Sample(
            *(arm, prompt.id, "confirm", 0.0, 50, tokens, len(rounds) + 1, prefill, prefill, seconds, "length"),
            draft_n=sum(d for d, _ in rounds),
            draft_n_accepted=sum(a for _, a in rounds),
            rejected_n=sum(a < d for d, a in rounds),
            draft_seconds=0.2 * seconds if arm.k else 0.0,
            verify_seconds=0.8 * seconds if arm.k else seconds,
            peak_memory_bytes=5_000_000_000 + 700_000_000 * (arm.k != 0),
            round_draft_seconds=arm.k * self.machine.draft_step * step if full else None,
            round_verify_seconds=self.machine.rows(arm.k + 1) * step if full else None,
        )


def true_log_speedups(simulated: Simulated, texts: Texts, arms, prompts: int) -> dict[object, float]:
    """The mean over kinds of the mean log speed-up of prompts of that kind, without noise."""
    luck, tokens = random.Random(99), texts.tokens
    pool = [
        [SamplePrompt(kind, str(i), f"{texts.draw(kind, luck)} {luck.random()}") for i in range(prompts)]
        for kind in texts.kinds
    ]
    return {
        arm: fmean(fmean(log((tokens - 1) / simulated.steps(arm, p, tokens)[0]) for p in group) for group in pool)
        for arm in arms
    }


def run_bench(machine, texts, report=unseen, tell=lambda _: None, **changes) -> Bench:
    """A bench that has run: `changes` are settings, or fields of the request."""
    names = {one.name for one in fields(BenchSettings)}
    settings = replace(SETTINGS, **{name: value for name, value in changes.items() if name in names})
    others = {name: value for name, value in changes.items() if name not in names}
    pair = Pair("tiny", "org/target", "org/draft")
    bench = Bench(replace(BenchRequest(pair, settings, (), ("model",), tuple(texts)), **others), machine, report, tell)
    bench.run()
    return bench


def sample_result(
    machine="M4 Pro (mlx 3852)", *, contenders=(DRAFT,), kinds=KINDS, cancel_after=float("inf"), **changes
) -> BenchResult:
    """A whole result with made-up models, for tests of what is made of one."""
    simulated = Simulated(BY_NAME[machine], seed=3, cancel_after=cancel_after, contenders=contenders)
    result = run_bench(simulated, Texts(kinds).prompts(8, 1), **changes).result()
    states = {
        "before": MachineState("mains", False, "nominal", 1.4),
        "after": MachineState("mains", False, "nominal", 2.2),
    }
    return replace(result, environment=replace(ENVIRONMENT, **states))
