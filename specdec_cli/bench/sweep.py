"""Sweeps K: learns acceptance and costs from plain answers, then confirms the leaders end to end within the budget.

Law: an arm and the baseline are measured on the same prompt, in an order drawn from the seed. Arms are confirmed on
prompts they were not chosen on, as long as there are such. An interrupted sweep leaves a valid result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Protocol

from specdec_cli.bench.estimate import estimates, next_arms
from specdec_cli.bench.plan import BenchPlan, in_turns, kinds_of
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Condition, CostSample, OfflineAcceptance, Phase, PromptId, Sample, plain

# Learning ends after this share of the budget.
LEARN_SHARE = 0.4
# Prompts to choose the leaders on, and at least one of each kind.
LEARN_PROMPTS = 6
# A block is started only if MARGIN times its expected seconds are left.
MARGIN = 1.1


class Cancelled(Exception):
    """The user interrupted the bench."""


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """One answer: its token ids and its measurements. The sweep fills in the sample's phase and start."""

    tokens: tuple[int, ...]
    sample: Sample


class Machine(Protocol):
    """A target and its drafts on one machine, or a simulation. All but `fitting` and `limit` may raise Cancelled."""

    def fitting(self, prompts: Sequence[BenchPrompt], tokens: int) -> list[BenchPrompt]:
        """The prompts that leave space for an answer of `tokens` tokens in the context."""

    def warm_up(self, prompt: BenchPrompt, conditions: Sequence[Condition], deepest: int) -> tuple[float, float]:
        """Seconds of prefill of this prompt and of a plain step, after short answers that are thrown away."""

    def limit(self, max_tokens: int) -> None:
        """Later answers have at most `max_tokens` tokens."""

    def clock(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Lets the machine cool down."""

    def answer(self, arm: Arm, prompt: BenchPrompt) -> MeasuredAnswer:
        """One answer from empty caches; K 0 is mlx-lm's own plain decoding."""

    def offline_acceptance(
        self, condition: Condition, prompt: BenchPrompt, tokens: tuple[int, ...], deepest: int
    ) -> OfflineAcceptance:
        """What `condition` would draft in the answer `tokens`, by teacher forcing where the rule allows it."""

    def costs(
        self, condition: Condition, prompt: BenchPrompt, tokens: tuple[int, ...], ks: Sequence[int]
    ) -> list[CostSample]:
        """Rounds of every K of `ks` and plain steps, interleaved, after prompt and answer."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the bench is doing, the `share` of the whole that is done, and an estimate of the seconds left."""

    what: str
    share: float
    seconds_left: float


OnProgress = Callable[[Progress], None]


class Sweep:
    """One sweep in progress; its lists only grow."""

    def __init__(
        self,
        machine: Machine,
        plan: BenchPlan,
        conditions: Sequence[Condition],
        prompts: Sequence[BenchPrompt],
        on_progress: OnProgress = lambda progress: None,
    ) -> None:
        self.samples: list[Sample] = []
        self.offline: list[OfflineAcceptance] = []
        self.costs: list[CostSample] = []
        self.seconds = 0.0
        self.partial = True
        self._machine, self._plan, self._conditions, self._on_progress = machine, plan, conditions, on_progress
        self._order = Random(plan.seed)
        self._prompts = in_turns(prompts, self._order)
        self._temperatures = list(dict.fromkeys(condition.temperature for condition in conditions))
        self._began = machine.clock()
        self._took: dict[Arm, list[float]] = {}
        self._studies: list[float] = []

    def run(self) -> None:
        """The whole sweep. Cancelled ends it without an error; `partial` then stays True."""
        try:
            learned = self._learn()
            self._confirm([*self._prompts[learned:], *self._prompts[:learned]])
            self._drift()
            self.partial = False
        except Cancelled:
            pass
        finally:
            self.seconds = self._elapsed

    @property
    def _elapsed(self) -> float:
        return self._machine.clock() - self._began

    @property
    def _left(self) -> float:
        return self._plan.budget_seconds - self._elapsed

    def _learn(self) -> int:
        """Plain answers, offline acceptance and costs of the first prompts; returns how many prompts it used."""
        wanted = min(max(LEARN_PROMPTS, len(kinds_of(self._prompts))), len(self._prompts))
        allowed = LEARN_SHARE * self._plan.budget_seconds
        for done, prompt in enumerate(self._prompts[:wanted]):
            if done > 1 and self._elapsed * (done + 1) / done > allowed:
                return done
            for temperature in self._temperatures:
                self._announce(f"learning from {prompt.kind}: {prompt.name}", 0.0)
                answer = self._answer(plain(temperature), prompt, "learn")
                self._study(prompt, temperature, answer.tokens)
        return wanted

    def _study(self, prompt: BenchPrompt, temperature: float, tokens: tuple[int, ...]) -> None:
        """Acceptance and costs of every contender in one plain answer, once for each prompt."""
        known = {(one.condition, one.prompt) for one in self.offline}
        ks, began = range(1, self._plan.deepest + 1), self._elapsed
        for condition in self._conditions:
            new = (condition, PromptId(prompt.kind, prompt.name)) not in known
            mine = condition.temperature == temperature and condition.contender.measurable_offline
            if ks and mine and new and len(tokens) > 1:
                offline = self._machine.offline_acceptance(condition, prompt, tokens, self._plan.deepest)
                costs = self._machine.costs(condition, prompt, tokens, self._order.sample(ks, len(ks)))
                self.offline.append(offline)
                self.costs += costs
        self._studies.append(self._elapsed - began)

    def _confirm(self, prompts: Sequence[BenchPrompt]) -> None:
        """Block by block: the baseline and the open arms on one prompt at one temperature, in random order."""
        for done, prompt in enumerate(prompts):
            for temperature in self._temperatures:
                arms = [plain(temperature), *self._open_arms(temperature)]
                left = self._left - self._seconds(arms[0])  # _drift repeats the first baseline at the end
                while len(arms) > 2 and self._needed(arms) > left:
                    arms.pop()
                needed = self._needed(arms)
                if needed > left:
                    return
                what = f"confirming {arm_names(arms)} on {prompt.kind}: {prompt.name}"
                self._announce(what, needed * (len(prompts) - done))
                answers = {arm: self._answer(arm, prompt, "confirm") for arm in self._order.sample(arms, len(arms))}
                self._study(prompt, temperature, answers[arms[0]].tokens)

    def _open_arms(self, temperature: float) -> list[Arm]:
        found = []
        for condition in self._conditions:
            if condition.temperature == temperature:
                found += estimates(condition, self._plan.ks, self.samples, self.offline, self.costs)
        return next_arms(found)

    def _drift(self) -> None:
        """Repeats the first baseline: it shows whether the machine became slower."""
        if not self.samples:
            return
        first = self.samples[0]
        prompt = next(p for p in self._prompts if PromptId(p.kind, p.name) == first.prompt)
        self._announce("repeating the first baseline", self._seconds(first.arm))
        self._answer(first.arm, prompt, "drift")

    def _answer(self, arm: Arm, prompt: BenchPrompt, phase: Phase) -> MeasuredAnswer:
        if self._plan.cooldown_seconds:
            self._machine.sleep(self._plan.cooldown_seconds)
        began = self._elapsed
        answer = self._machine.answer(arm, prompt)
        self._took.setdefault(arm, []).append(self._elapsed - began)
        if answer.sample.emitted_tokens > 1:  # a single token has no decode time
            self.samples.append(replace(answer.sample, phase=phase, started_seconds=began))
        return answer

    def _needed(self, arms: Sequence[Arm]) -> float:
        """Expected seconds of a block of these arms."""
        return MARGIN * sum(map(self._seconds, arms)) + fmean(self._studies)

    def _seconds(self, arm: Arm) -> float:
        """Expected seconds of one answer, cool-down included; the baseline's where the arm was never run."""
        known = self._took.get(arm) or self._took[plain(arm.temperature)]
        return fmean(known) + self._plan.cooldown_seconds

    def _announce(self, what: str, ahead: float) -> None:
        """Reports progress. `ahead`: expected seconds of the rest, 0 for all of the budget that is left."""
        left = max(min(self._left, ahead or self._left), 0.0)
        self._on_progress(Progress(what, self._elapsed / (self._elapsed + left) if left else 1.0, left))


def arm_names(arms: Sequence[Arm]) -> str:
    """The drafting arms by name."""
    return " and ".join(f"K {arm.k}" for arm in arms if arm.k != 0) or "the baseline"
