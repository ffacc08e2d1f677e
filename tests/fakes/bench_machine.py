"""A simulated machine for the bench: scripted acceptance, published costs (tests/machine.py), its own clock. (pure)

A prompt is a row of coin flips: does the draft say the same token there? Kinds differ in the odds, and prompts of a
kind do too. An answer's rounds follow from the flips alone, so what teacher forcing says is exact; seconds are noisy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log
from statistics import fmean

from fakes.machine import Machine
from specdec_cli.bench.predict import rounds_at
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import CostSample, OfflineAcceptance, PromptId, Sample
from specdec_cli.bench.sweep import Cancelled, MeasuredAnswer


@dataclass(frozen=True)
class Texts:
    """Odds of agreement by kind; those of a prompt scatter around them by `spread`."""

    kinds: dict[str, float]
    spread: float = 0.06
    tokens: int = 96

    def prompts(self, each: int, seed: int) -> list[BenchPrompt]:
        """The text of a simulated prompt is its odds and its seed."""
        luck = random.Random(seed)
        return [
            BenchPrompt(kind, str(i), f"{self.draw(kind, luck)} {luck.random()}")
            for kind in self.kinds
            for i in range(each)
        ]

    def draw(self, kind: str, luck: random.Random) -> float:
        return min(max(luck.gauss(self.kinds[kind], self.spread), 0.0), 0.995)


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
    """Implements bench.Machine. `slower` adds to log seconds of an arm beyond what its costs say; `better` adds to the
    odds of a contender; `heat` slows everything down over the clock's seconds."""

    machine: Machine
    tokens: int = 96
    deepest: int = 8
    seed: int = 0
    noise: float = 0.03
    slower: float = 0.02
    heat: float = 0.0
    better: dict[str, float] = field(default_factory=dict)
    cancel_after: float = float("inf")
    slept: float = 0.0
    _now: float = 0.0

    def __post_init__(self) -> None:
        self._luck = random.Random(self.seed)

    def clock(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self.slept += seconds

    def _spend(self, steps: float, noise: float) -> float:
        seconds = steps * self.machine.plain_seconds * exp(self._luck.gauss(0, noise) + self.heat * self._now)
        self._now += seconds
        if self._now > self.cancel_after:
            raise Cancelled
        return seconds

    def offline_acceptance(self, condition, prompt, tokens, deepest):
        found = runs(prompt.text, self.tokens, deepest, self.better.get(condition.contender.name, 0.0))
        self._spend(self.tokens * self.machine.draft_step / 8, self.noise)
        drafted = (deepest,) * self.tokens
        return OfflineAcceptance(
            condition, PromptId(prompt.kind, prompt.name), self.tokens, self.tokens, deepest, drafted, found
        )

    def costs(self, condition, prompt, tokens, ks):
        return [
            CostSample(
                condition,
                50 + len(tokens),
                k,
                self._spend(k * self.machine.draft_step, self.noise),
                self._spend(self.machine.rows(k + 1), self.noise),
                self._spend(1.0, self.noise),
            )
            for k in ks
        ]

    def steps(self, arm, prompt) -> tuple[float, list[tuple[int, int]]]:
        """Plain steps behind the first token, and the rounds."""
        if arm.k == 0:
            return self.tokens - 1.0, [(0, 0)] * (self.tokens - 1)
        k = 4 if arm.k == "auto" else arm.k
        found = runs(prompt.text, self.tokens, self.deepest, self.better.get(arm.contender.name, 0.0))
        drafted = (99,) * len(found)
        at = PromptId("", "")
        one = OfflineAcceptance(arm.condition, at, self.tokens, self.tokens, self.deepest, drafted, found)
        rounds = rounds_at(one, k)
        cost = sum(d * self.machine.draft_step + self.machine.rows(d + 1) if d else 1.0 for d, _ in rounds)
        return cost * exp(self.slower), rounds

    def answer(self, arm, prompt):
        steps, rounds = self.steps(arm, prompt)
        prefill = self._spend(4.0, self.noise)
        seconds = self._spend(steps, self.noise)
        sample = Sample(
            arm=arm,
            prompt=PromptId(prompt.kind, prompt.name),
            phase="learn",
            started_seconds=0.0,
            prompt_tokens=50,
            emitted_tokens=self.tokens,
            target_passes=len(rounds) + 1,
            prefill_seconds=prefill,
            ttft_seconds=prefill + self.machine.plain_seconds,
            decode_seconds=seconds,
            finish="length",
            draft_n=sum(d for d, _ in rounds),
            draft_n_accepted=sum(a for _, a in rounds),
            rejected_n=sum(a < d for d, a in rounds),
            draft_seconds=0.2 * seconds if arm.k else 0.0,
            verify_seconds=0.8 * seconds if arm.k else seconds,
            peak_memory_bytes=5_000_000_000 + 700_000_000 * (arm.k != 0),
        )
        return MeasuredAnswer(tuple(range(self.tokens)), sample)


def true_log_speedups(simulated: Simulated, texts: Texts, arms, prompts: int = 1500) -> dict[object, float]:
    """The mean over kinds of the mean log speed-up of prompts of that kind, without noise."""
    luck = random.Random(99)
    pool = {
        kind: [BenchPrompt(kind, str(i), f"{texts.draw(kind, luck)} {luck.random()}") for i in range(prompts)]
        for kind in texts.kinds
    }
    plain = simulated.tokens - 1.0
    return {
        arm: fmean(fmean(log(plain / simulated.steps(arm, p)[0]) for p in group) for group in pool.values())
        for arm in arms
    }
