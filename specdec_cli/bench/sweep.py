"""Measures every arm on every prompt, end to end, within the budget.

Law: an arm and the baseline are measured on the same prompt, in an order drawn from the seed. The first FEWEST_PROMPTS
prompts are measured whatever the budget. An interrupted sweep leaves a valid result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import Protocol

from specdec_cli.bench.estimate import estimates, in_trial_order, next_arms
from specdec_cli.bench.intervals import FEWEST_PROMPTS
from specdec_cli.bench.plan import BenchPlan, in_turns
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Arm, Condition, CostSample, Phase, PromptId, Sample, plain

# As many arms are open at first as let the budget cover this many prompts.
WANTED_PROMPTS = 10
# Arms of each contender that are measured however slow the machine is.
FEWEST_ARMS = 2
# A prompt is begun only if MARGIN times its expected seconds are left.
MARGIN = 1.1


class Cancelled(Exception):
    """The user interrupted the bench."""


class Machine(Protocol):
    """A target and its drafts on one machine, or a simulation. `warm_up`, `answer` and `sleep` may raise Cancelled."""

    def fitting(self, prompts: Sequence[BenchPrompt], tokens: int) -> list[BenchPrompt]:
        """The prompts that leave space for an answer of `tokens` tokens in the context."""

    def warm_up(self, prompt: BenchPrompt, arms: Sequence[Arm], seconds: float) -> tuple[float, float]:
        """Seconds of prefill of this prompt and of a plain step, after short answers that are thrown away.

        The first arm is a baseline. The others are warmed up for as long as `seconds` last.
        """

    def limit(self, max_tokens: int) -> None:
        """Later answers have at most `max_tokens` tokens."""

    def clock(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Lets the machine cool down."""

    def answer(self, arm: Arm, prompt: BenchPrompt) -> Sample:
        """One answer from empty caches; K 0 is mlx-lm's own plain decoding. The sweep fills in phase and start."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the bench is doing, the `share` of the whole that is done, and an estimate of the seconds left."""

    what: str
    share: float
    seconds_left: float


OnProgress = Callable[[Progress], None]


class Sweep:
    """One sweep in progress; its lists only grow. `answer_seconds` is what an answer is expected to take at first."""

    def __init__(
        self,
        machine: Machine,
        plan: BenchPlan,
        conditions: Sequence[Condition],
        prompts: Sequence[BenchPrompt],
        answer_seconds: float,
        on_progress: OnProgress = lambda progress: None,
    ) -> None:
        self.samples: list[Sample] = []
        self.costs: list[CostSample] = []
        self.seconds = 0.0
        self.partial = True
        self._machine, self._plan, self._on_progress = machine, plan, on_progress
        self._order = Random(plan.seed)
        self._prompts = in_turns(prompts, self._order)
        temperatures = dict.fromkeys(condition.temperature for condition in conditions)
        self._trials = {one: in_trial_order(conditions, one, plan.ks) for one in temperatures}
        self._expected = answer_seconds + plan.cooldown_seconds
        self._began = machine.clock()
        self._measured = 0
        # Of every answer: seconds to the first token for a character of prompt, and seconds after it.
        self._reading: list[float] = []
        self._writing: list[float] = []

    @property
    def fewest_seconds(self) -> float:
        """Expected seconds of what is measured whatever the budget."""
        answers = sum(1 + self._fewest(temperature) for temperature in self._trials)
        return min(FEWEST_PROMPTS, len(self._prompts)) * answers * self._expected

    def run(self) -> None:
        """The whole sweep. Cancelled ends it without an error; `partial` then stays True."""
        try:
            for prompt in self._prompts:
                blocks = {temperature: self._arms(temperature, prompt) for temperature in self._trials}
                if not any(blocks.values()):
                    continue  # there may be time for a shorter prompt
                for temperature, arms in blocks.items():
                    self._measure([plain(temperature), *arms], prompt)
                self._measured += 1
            self._repeat_first()
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

    def _arms(self, temperature: float, prompt: BenchPrompt) -> list[Arm]:
        """The drafting arms of the next prompt: as many as the time is for, none if it is not for one."""
        seconds, trials = MARGIN * self._seconds(prompt) * len(self._trials), self._trials[temperature]
        answers = self._left / seconds
        ahead = max(WANTED_PROMPTS - self._measured, 1)
        places = max(int(answers / ahead), min(int(answers), 1 + FEWEST_ARMS)) - 1
        begun = [arm for arm in trials if any(sample.arm == arm for sample in self.samples)]
        if self._measured < FEWEST_PROMPTS:  # the arms stay the same, so that each has enough prompts
            places = len(begun) if begun else max(places, self._fewest(temperature))
        if places < 1:
            return []
        found = estimates(begun, self.samples)
        may_join = self._left > FEWEST_PROMPTS * (places + 1) * seconds or not begun
        return next_arms(found, [arm for arm in trials if may_join and arm not in begun])[:places]

    def _fewest(self, temperature: float) -> int:
        """Arms that are measured whatever the budget: FEWEST_ARMS of each contender, of those there are."""
        per_contender = Counter(arm.contender for arm in self._trials[temperature])
        return sum(min(FEWEST_ARMS, number) for number in per_contender.values())

    def _measure(self, arms: Sequence[Arm], prompt: BenchPrompt) -> None:
        """The arms, the baseline first, on one prompt in random order; what their rounds cost in its plain steps."""
        self._announce(f"measuring {arm_names(arms)} on {prompt.kind}: {prompt.name}")
        found = {arm: self._answer(arm, prompt, "confirm") for arm in self._order.sample(arms, len(arms))}
        base = found[arms[0]]
        for arm, sample in found.items():
            draft, verify = sample.round_draft_seconds, sample.round_verify_seconds
            if arm.k != "auto" and draft is not None and verify is not None and base.emitted_tokens > 1:
                context = sample.prompt_tokens + sample.emitted_tokens // 2
                self.costs.append(CostSample(arm.condition, context, arm.k, draft, verify, 1 / base.tokens_per_second))

    def _repeat_first(self) -> None:
        """Repeats the first baseline, if there is time: it shows whether the machine became slower."""
        first = next((sample for sample in self.samples if sample.arm.k == 0), None)
        prompt = next((p for p in self._prompts if first and PromptId(p.kind, p.name) == first.prompt), None)
        if first and prompt and self._seconds(prompt) < self._left:
            self._announce("repeating the first baseline")
            self._answer(first.arm, prompt, "drift")

    def _answer(self, arm: Arm, prompt: BenchPrompt, phase: Phase) -> Sample:
        if self._plan.cooldown_seconds:
            self._machine.sleep(self._plan.cooldown_seconds)
        began = self._elapsed
        sample = replace(self._machine.answer(arm, prompt), phase=phase, started_seconds=began)
        self._reading.append(sample.ttft_seconds / len(prompt.text))
        self._writing.append(self._elapsed - began - sample.ttft_seconds)
        if sample.emitted_tokens > 1:  # a single token has no decode time
            self.samples.append(sample)
        return sample

    def _seconds(self, prompt: BenchPrompt) -> float:
        """Expected seconds of an answer to `prompt`, cool-down included."""
        if not self._writing:
            return self._expected
        return fmean(self._reading) * len(prompt.text) + fmean(self._writing) + self._plan.cooldown_seconds

    def _announce(self, what: str) -> None:
        left = max(self._left, self.fewest_seconds * (1 - self._measured / FEWEST_PROMPTS), 0.0)
        self._on_progress(Progress(what, self._elapsed / (self._elapsed + left) if left else 1.0, left))


def arm_names(arms: Sequence[Arm]) -> str:
    """The drafting arms by name."""
    return "K " + ", ".join(dict.fromkeys(str(arm.k) for arm in arms if arm.k != 0))
