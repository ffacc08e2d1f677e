"""Measures every arm on every prompt, end to end, within the budget.

An arm and the baseline are measured on the same prompt, in an order drawn from the seed. The first FEWEST_PROMPTS
prompts are measured whatever the budget. An interrupted bench leaves a valid result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import ceil
from random import Random
from statistics import fmean
from typing import Protocol

from specdec_cli.apps.bench.estimate import estimates, in_trial_order, next_arms
from specdec_cli.apps.bench.result import (
    Arm,
    BenchResult,
    BenchSettings,
    Contender,
    Environment,
    Phase,
    Sample,
    kinds_of,
)
from specdec_cli.core.errors import DoesNotFit
from specdec_cli.core.format import SEPARATOR, clock, count
from specdec_cli.core.progress import OnStep, Step, unseen
from specdec_cli.measure.intervals import FEWEST_PROMPTS
from specdec_cli.measure.prompts import SamplePrompt
from specdec_cli.pairs.pair import Pair
from specdec_cli.system.machine import MachineState, machine_state

# Default length of an answer in tokens: enough for a steady rate, fewer where the budget is small.
MAX_TOKENS, FEWEST_TOKENS = 128, 24
# Answers that a budget should cover, baselines included.
ANSWERS = 48
# As many arms are open at first as let the budget cover this many prompts.
WANTED_PROMPTS = 10
# Arms of each contender that are measured however slow the machine is.
FEWEST_ARMS = 2
# A prompt is begun only if MARGIN times its expected seconds are left.
MARGIN = 1.1
# Tokens of the answers that are thrown away to warm up, and their share of the budget.
WARM_TOKENS, WARM_SHARE = 8, 0.05


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What the command line requested: `settings` as they are kept, and what only this bench needs.

    `drafts` are further draft models.
    """

    pair: Pair
    settings: BenchSettings
    drafts: tuple[str, ...]
    drafters: tuple[str, ...]
    prompts: tuple[SamplePrompt, ...]
    force: bool = False


class Cancelled(Exception):
    """The user interrupted the bench."""


class Machine(Protocol):
    """A target and its drafts on one machine, or a simulation. `answer` and `sleep` may raise Cancelled.

    `contenders` are the drafters with their drafts; `environment` lacks the machine's state before and after.
    """

    contenders: tuple[Contender, ...]
    environment: Environment

    def fitting(self, prompts: Sequence[SamplePrompt], tokens: int) -> list[SamplePrompt]:
        """The prompts that leave space for an answer of `tokens` tokens in the context."""

    def clock(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Lets the machine cool down."""

    def answer(self, arm: Arm, prompt: SamplePrompt, max_tokens: int) -> Sample:
        """One answer from empty caches; K 0 is mlx-lm's own plain decoding. The bench fills in phase and start."""


def in_turns(prompts: Iterable[SamplePrompt], order: Random) -> list[SamplePrompt]:
    """The first prompt of each kind, then the second of each, …; kinds in the given order, prompts in a random one."""
    kinds: dict[str, list[SamplePrompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    shuffled = [order.sample(group, len(group)) for group in kinds.values()]
    return [prompt for turn in zip_longest(*shuffled) for prompt in turn if prompt is not None]


def tokens_within(budget_seconds: float, prefill_seconds: float, step_seconds: float, conditions: int) -> int:
    """Tokens an answer may have so that ANSWERS answers for each condition fit the budget."""
    fitting = (budget_seconds / (ANSWERS * max(conditions, 1)) - prefill_seconds) / step_seconds
    return min(MAX_TOKENS, max(FEWEST_TOKENS, int(fitting)))


class Bench:
    """One bench: `run` it, then read `result` if there are `samples`; these only grow.

    `report` hears how much of the time is over and what goes on, `tell` what the user should know first.
    """

    def __init__(
        self,
        request: BenchRequest,
        machine: Machine,
        report: OnStep = unseen,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.samples: list[Sample] = []
        self._request, self._machine, self._report, self._tell = request, machine, report, tell
        self._settings = replace(request.settings, contenders=machine.contenders)
        self._order = Random(self._settings.seed)
        conditions = self._settings.conditions
        self._trials = {
            temperature: in_trial_order([c for c in conditions if c.temperature == temperature], self._settings.ks)
            for temperature in dict.fromkeys(self._settings.temperatures)
        }
        self._fewest_arms = FEWEST_ARMS * len(machine.contenders)
        self._states = [MachineState()]
        self._partial, self._measured = True, 0
        # Of every answer: seconds to the first token for a character of prompt, and seconds after it.
        self._reading: list[float] = []
        self._writing: list[float] = []
        self._prompts: list[SamplePrompt] = []
        self._began = machine.clock()
        self._expected = self._seconds_taken = 0.0

    def run(self) -> None:
        """The whole bench. Cancelled ends it without an error; the result is then partial.

        Raises: DoesNotFit if no prompt leaves room for an answer.
        """
        self._prompts = in_turns(self._fitting(), self._order)
        self._states = [machine_state()]
        self._began = self._machine.clock()
        try:
            self._warm_up()
            for prompt in self._prompts:
                blocks = {temperature: self._arms(temperature, prompt) for temperature in self._trials}
                if not any(blocks.values()):
                    continue  # there may be time for a shorter prompt
                for arms in filter(None, blocks.values()):
                    self._measure([arms[0].condition.arm(0), *arms], prompt)
                self._measured += 1
            self._repeat_first()
            self._partial = False
        except Cancelled:
            pass
        finally:
            self._seconds_taken = self._elapsed
            self._states.append(machine_state())

    def result(self) -> BenchResult:
        """What was measured so far."""
        environment = replace(self._machine.environment, before=self._states[0], after=self._states[-1])
        kinds = kinds_of(self._prompts)
        prompts, source = len(self._prompts), self._settings.prompts
        told = f"{count(prompts, 'bundled prompt')} of {count(len(kinds), 'kind')}"
        told = f"{count(prompts, 'prompt')} of {source}" if source else told
        settings = replace(self._settings, kinds=kinds, prompts=told)
        return BenchResult(settings, environment, tuple(self.samples), self._seconds_taken, self._partial)

    def _fitting(self) -> list[SamplePrompt]:
        every, tokens = self._request.prompts, self._settings.max_tokens or MAX_TOKENS
        fitting = self._machine.fitting(every, tokens)
        if not fitting:
            none = f"none of the {len(every)} prompts leaves" if len(every) > 1 else "the only prompt leaves no"
            raise DoesNotFit(
                f"{none} room for {count(tokens, 'token')} in these models' context",
                "ask for shorter answers (-n) or give shorter prompts (--prompts FILE)",
            )
        if len(fitting) < len(every):
            left_out = len(every) - len(fitting)
            self._tell(f"{left_out} of {len(every)} prompts leave no room for {tokens} tokens: left out")
        return fitting

    def _warm_up(self) -> None:
        """Short answers that are thrown away, as many arms as a share of the budget is for; then answers' length."""
        self._announce("warming up")
        typical = sorted(self._prompts, key=lambda prompt: len(prompt.text))[len(self._prompts) // 2]
        trials = next(iter(self._trials.values()))
        plain = trials[0].condition.arm(0)
        sample = self._machine.answer(plain, typical, WARM_TOKENS)
        for arm in (*trials, plain):
            if self._elapsed < WARM_SHARE * self._settings.budget_seconds:
                sample = self._machine.answer(arm, typical, WARM_TOKENS)
        prefill, step = sample.ttft_seconds, sample.decode_seconds / max(sample.timed_tokens, 1)
        wanted = self._settings.max_tokens
        if not wanted:
            wanted = tokens_within(self._left, prefill, step or prefill, len(self._settings.conditions))
        self._settings = replace(self._settings, max_tokens=wanted)
        self._expected = prefill + wanted * step + self._settings.cooldown_seconds
        if self._fewest_seconds > self._left:
            minutes = ceil((self._fewest_seconds + self._elapsed) / 60)
            self._tell(f"this machine is slow: {FEWEST_PROMPTS} prompts take about {minutes} min, over --time-budget")

    @property
    def _fewest_seconds(self) -> float:
        """Expected seconds of what is still measured whatever the budget."""
        answers = sum(1 + min(self._fewest_arms, len(trials)) for trials in self._trials.values())
        wanted = min(FEWEST_PROMPTS, len(self._prompts)) * answers
        return max(wanted - len(self._writing), 0) * self._expected

    @property
    def _elapsed(self) -> float:
        return self._machine.clock() - self._began

    @property
    def _left(self) -> float:
        return self._settings.budget_seconds - self._elapsed

    def _arms(self, temperature: float, prompt: SamplePrompt) -> list[Arm]:
        """The drafting arms of the next prompt: as many as the time is for, none if it is not for one."""
        seconds, trials = MARGIN * self._seconds(prompt) * len(self._trials), self._trials[temperature]
        answers = self._left / seconds
        ahead = max(WANTED_PROMPTS - self._measured, 1)
        places = max(int(answers / ahead), min(int(answers), 1 + FEWEST_ARMS)) - 1
        begun = [arm for arm in trials if any(sample.arm == arm for sample in self.samples)]
        if self._measured < FEWEST_PROMPTS:  # the arms stay the same, so that each has enough prompts
            places = len(begun) or max(places, self._fewest_arms)
        if places < 1:
            return []
        may_join = self._left > FEWEST_PROMPTS * (places + 1) * seconds or not begun
        waiting = [arm for arm in trials if may_join and arm not in begun]
        return next_arms(estimates(begun, self.samples), waiting)[:places]

    def _measure(self, arms: Sequence[Arm], prompt: SamplePrompt) -> None:
        """The arms, the baseline first, on one prompt in random order."""
        names = ", ".join(dict.fromkeys(str(arm.k) for arm in arms[1:]))
        for arm in self._order.sample(arms, len(arms)):
            self._announce(f"K {names} on {prompt.kind}: {prompt.name}")
            self._answer(arm, prompt, "confirm")

    def _repeat_first(self) -> None:
        """Repeats the first baseline, if there is time: it shows whether the machine became slower."""
        first = next((sample for sample in self.samples if sample.arm.k == 0), None)
        prompt = next((one for one in self._prompts if first and one.id == first.prompt), None)
        if first and prompt and self._seconds(prompt) < self._left:
            self._announce("repeating the first baseline")
            self._answer(first.arm, prompt, "drift")

    def _answer(self, arm: Arm, prompt: SamplePrompt, phase: Phase) -> Sample:
        if self._settings.cooldown_seconds:
            self._machine.sleep(self._settings.cooldown_seconds)
        began = self._elapsed
        answer = self._machine.answer(arm, prompt, self._settings.max_tokens)
        sample = replace(answer, phase=phase, started_seconds=began)
        self._reading.append(sample.ttft_seconds / len(prompt.text))
        self._writing.append(self._elapsed - began - sample.ttft_seconds)
        if sample.timed_tokens:  # a single round has no decode time
            self.samples.append(sample)
        return sample

    def _seconds(self, prompt: SamplePrompt) -> float:
        """Expected seconds of an answer to `prompt`, cool-down included."""
        if not self._writing:
            return self._expected
        return fmean(self._reading) * len(prompt.text) + fmean(self._writing) + self._settings.cooldown_seconds

    def _announce(self, what: str) -> None:
        left = max(self._left, self._fewest_seconds)
        share = self._elapsed / (self._elapsed + left) if left else 1.0
        self._report(Step("", round(100 * share), 100, "%", f"{clock(left)} left{SEPARATOR}{what}"))
