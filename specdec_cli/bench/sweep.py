"""Runs a bench: learns every K's acceptance and costs, confirms the leaders end to end, in the time it was given.

Law: an arm is measured beside the baseline, on the same prompt, in an order drawn from the seed; what is confirmed is
confirmed on other prompts than it was chosen on, as long as there are others; whatever ends the bench early, what was
measured so far is a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Protocol

from specdec_cli.bench.estimate import estimates, next_arms
from specdec_cli.bench.plan import Plan, in_turns, kinds_of
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Condition, CostSample, Phase, PromptId, Rehearsal, Sample, plain

# Share of the budget after which learning ends, however many prompts it has seen.
LEARN_SHARE = 0.4
# Prompts to choose the leaders on, and at least one of each kind.
LEARN_PROMPTS = 6
# What a run may take beyond what the last ones took, before it is not begun any more.
MARGIN = 1.1


class Cancelled(Exception):
    """The person at the keyboard wants an end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its token ids, and what is measured of it. A Machine fills in neither phase nor start."""

    tokens: tuple[int, ...]
    sample: Sample


class Machine(Protocol):
    """A target and its drafts on one machine, or a simulation of it. Every method may raise Cancelled."""

    def clock(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Let it cool down."""

    def answer(self, arm: Arm, prompt: BenchPrompt) -> Answer:
        """One answer from empty caches; K 0 is mlx-lm's own plain decoding."""

    def rehearse(self, condition: Condition, prompt: BenchPrompt, tokens: tuple[int, ...], deepest: int) -> Rehearsal:
        """What `condition` would draft in the answer `tokens`; by a real run where only that can tell."""

    def costs(
        self, condition: Condition, prompt: BenchPrompt, tokens: tuple[int, ...], ks: Sequence[int]
    ) -> list[CostSample]:
        """Rounds of every K of `ks` and plain steps, interleaved, behind prompt and answer."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is being done; `share` of the whole, and seconds left, as far as can be told."""

    what: str
    share: float
    seconds_left: float


Report = Callable[[Progress], None]


class Bench:
    """One bench in progress; its lists only grow."""

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        conditions: Sequence[Condition],
        prompts: Sequence[BenchPrompt],
        report: Report = lambda progress: None,
    ) -> None:
        self.samples: list[Sample] = []
        self.rehearsals: list[Rehearsal] = []
        self.costs: list[CostSample] = []
        self.seconds = 0.0
        self.partial = True
        self._machine, self._plan, self._conditions, self._report = machine, plan, conditions, report
        self._order = Random(plan.seed)
        self._prompts = in_turns(prompts, self._order)
        self._temperatures = list(dict.fromkeys(condition.temperature for condition in conditions))
        self._began = machine.clock()
        self._took: dict[Arm, list[float]] = {}
        self._studies: list[float] = []

    def run(self) -> None:
        """The whole bench. Cancelled ends it quietly, with `partial` left True."""
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
        """Plain answers, rehearsals and costs, until the leaders can be chosen; returns the prompts it took."""
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
        """Acceptance and costs of every contender in one plain answer, once."""
        known = {(one.condition, one.prompt) for one in self.rehearsals}
        ks, began = range(1, self._plan.deepest + 1), self._elapsed
        for condition in self._conditions:
            new = (condition, PromptId(prompt.kind, prompt.name)) not in known
            mine = condition.temperature == temperature and condition.contender.replayable
            if ks and mine and new and len(tokens) > 1:
                rehearsal = self._machine.rehearse(condition, prompt, tokens, self._plan.deepest)
                costs = self._machine.costs(condition, prompt, tokens, self._order.sample(ks, len(ks)))
                self.rehearsals.append(rehearsal)
                self.costs += costs
        self._studies.append(self._elapsed - began)

    def _confirm(self, prompts: Sequence[BenchPrompt]) -> None:
        """Block by block: one prompt at one temperature, the baseline and the open arms in random order."""
        for done, prompt in enumerate(prompts):
            for temperature in self._temperatures:
                arms = [plain(temperature), *self._open_arms(temperature)]
                left = self._left - self._seconds(arms[0])  # the first baseline is repeated at the end
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
                found += estimates(condition, self._plan.ks, self.samples, self.rehearsals, self.costs)
        return next_arms(found)

    def _drift(self) -> None:
        """The first baseline once more."""
        if not self.samples:
            return
        first = self.samples[0]
        prompt = next(p for p in self._prompts if PromptId(p.kind, p.name) == first.prompt)
        self._announce("repeating the first baseline", self._seconds(first.arm))
        self._answer(first.arm, prompt, "drift")

    def _answer(self, arm: Arm, prompt: BenchPrompt, phase: Phase) -> Answer:
        if self._plan.cooldown_seconds:
            self._machine.sleep(self._plan.cooldown_seconds)
        began = self._elapsed
        answer = self._machine.answer(arm, prompt)
        self._took.setdefault(arm, []).append(self._elapsed - began)
        if answer.sample.emitted_tokens > 1:  # else there was nothing to measure
            self.samples.append(replace(answer.sample, phase=phase, started_seconds=began))
        return answer

    def _needed(self, arms: Sequence[Arm]) -> float:
        """Seconds that a block of these arms is likely to take."""
        return MARGIN * sum(map(self._seconds, arms)) + fmean(self._studies)

    def _seconds(self, arm: Arm) -> float:
        """Of one answer, cooling down included; as slow as the baseline where nothing is known."""
        known = self._took.get(arm) or self._took[plain(arm.temperature)]
        return fmean(known) + self._plan.cooldown_seconds

    def _announce(self, what: str, ahead: float) -> None:
        """`ahead`: seconds that the rest needs, 0 for all that are left."""
        left = max(min(self._left, ahead or self._left), 0.0)
        self._report(Progress(what, self._elapsed / (self._elapsed + left) if left else 1.0, left))


def arm_names(arms: Sequence[Arm]) -> str:
    """The drafting arms in words."""
    return " and ".join(f"K {arm.k}" for arm in arms if arm.k != 0) or "the baseline"
