"""A simulated machine for the bench: scripted acceptance, published costs (tests/machine.py), its own clock. (pure)

A prompt is a row of coin flips: does the draft say the same token there? Kinds differ in the odds, and prompts of a
kind do too. An answer's rounds follow from the flips alone; seconds are noisy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log
from statistics import fmean

from fakes.machine import Machine
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import PromptId, Sample
from specdec_cli.bench.sweep import Cancelled

# Log seconds that `auto` spends on finding its K.
AUTO_COST = 0.04


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


def rounds_at(found: tuple[int, ...], k: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of every round after the first token, from what the draft would say as well."""
    rounds, at = [], 1
    while at < len(found):
        drafted = min(k, len(found) - at - 1)
        accepted = min(drafted, found[at])
        rounds.append((drafted, accepted))
        at += accepted + 1
    return rounds


@dataclass
class Simulated:
    """Implements bench.Machine. `slower` adds to log seconds of an arm beyond what its costs say; `better` adds to the
    odds of a contender; `heat` slows everything down over the clock's seconds. `auto` is the K that `auto` finds."""

    machine: Machine
    tokens: int = 96
    deepest: int = 8
    seed: int = 0
    noise: float = 0.03
    slower: float = 0.02
    heat: float = 0.0
    better: dict[str, float] = field(default_factory=dict)
    cancel_after: float = float("inf")
    auto: int = 4
    prefill_steps: float = 4.0
    limits: tuple[int, ...] = ()
    slept: float = 0.0
    _now: float = 0.0

    def __post_init__(self) -> None:
        self._luck = random.Random(self.seed)

    def fitting(self, prompts, tokens):
        return list(prompts)

    def warm_up(self, prompt, arms, seconds):
        return self._spend(self.prefill_steps, self.noise), self._spend(8.0, self.noise) / 8

    def limit(self, max_tokens):
        self.limits = (*self.limits, max_tokens)
        self.tokens = min(self.tokens, max_tokens)

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

    def steps(self, arm, prompt) -> tuple[float, list[tuple[int, int]]]:
        """Plain steps behind the first token, and the rounds."""
        k = self.auto if arm.k == "auto" else arm.k
        if k == 0:
            return self.tokens - 1.0, [(0, 0)] * (self.tokens - 1)
        rounds = rounds_at(runs(prompt.text, self.tokens, self.deepest, self.better.get(arm.contender.name, 0.0)), k)
        cost = sum(d * self.machine.draft_step + self.machine.rows(d + 1) if d else 1.0 for d, _ in rounds)
        return cost * exp(self.slower + AUTO_COST * (arm.k == "auto")), rounds

    def answer(self, arm, prompt):
        steps, rounds = self.steps(arm, prompt)
        prefill = self._spend(self.prefill_steps, self.noise)
        seconds = self._spend(steps, self.noise)
        full = arm.k != "auto" and arm.k and any(d == arm.k for d, _ in rounds)
        step = seconds / steps
        return Sample(
            arm=arm,
            prompt=PromptId(prompt.kind, prompt.name),
            phase="confirm",
            started_seconds=0.0,
            prompt_tokens=50,
            emitted_tokens=self.tokens,
            target_passes=len(rounds) + 1,
            prefill_seconds=prefill,
            ttft_seconds=prefill,
            decode_seconds=seconds,
            finish="length",
            draft_n=sum(d for d, _ in rounds),
            draft_n_accepted=sum(a for _, a in rounds),
            rejected_n=sum(a < d for d, a in rounds),
            draft_seconds=0.2 * seconds if arm.k else 0.0,
            verify_seconds=0.8 * seconds if arm.k else seconds,
            peak_memory_bytes=5_000_000_000 + 700_000_000 * (arm.k != 0),
            round_draft_seconds=arm.k * self.machine.draft_step * step if full else None,
            round_verify_seconds=self.machine.rows(arm.k + 1) * step if full else None,
            drafted_at=tuple(sum(d > j for d, _ in rounds) for j in range(max(d for d, _ in rounds))),
            accepted_at=tuple(sum(a > j for _, a in rounds) for j in range(max(d for d, _ in rounds))),
        )


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
