"""Measures every arm on every prompt, end to end, within the budget.

An arm and the baseline are measured on the same prompt, in an order drawn from the seed. The first FEWEST_PROMPTS
prompts are measured whatever the budget. An interrupted sweep leaves a valid result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from math import ceil
from random import Random
from statistics import fmean
from typing import Protocol

from specdec_cli.bench.estimate import FEWEST_PROMPTS, estimates, in_trial_order, next_arms
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import (
    Arm,
    BenchResult,
    BenchSettings,
    Condition,
    Contender,
    CostSample,
    Environment,
    Length,
    Phase,
    PromptId,
    Sample,
    kinds_of,
    plain,
)
from specdec_cli.errors import DoesNotFit
from specdec_cli.format import count
from specdec_cli.machine import MachineState, machine_state
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Constraint

# Default length of an answer in tokens: enough for a steady rate, fewer where the budget is small.
MAX_TOKENS, FEWEST_TOKENS = 128, 24
# Answers that a budget should cover, baselines included.
ANSWERS = 48


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """K, time and seed of a sweep."""

    ks: tuple[Length, ...]
    budget_seconds: float
    cooldown_seconds: float = 0.0
    seed: int = 0


def in_turns(prompts: Iterable[BenchPrompt], order: Random) -> list[BenchPrompt]:
    """The first prompt of each kind, then the second of each, …; kinds in the given order, prompts in a random one."""
    kinds: dict[str, list[BenchPrompt]] = {}
    for prompt in prompts:
        kinds.setdefault(prompt.kind, []).append(prompt)
    shuffled = [order.sample(group, len(group)) for group in kinds.values()]
    return [prompt for turn in zip_longest(*shuffled) for prompt in turn if prompt is not None]


def tokens_within(budget_seconds: float, prefill_seconds: float, step_seconds: float, conditions: int) -> int:
    """Tokens an answer may have so that ANSWERS answers for each condition fit the budget."""
    fitting = (budget_seconds / (ANSWERS * max(conditions, 1)) - prefill_seconds) / step_seconds
    return min(MAX_TOKENS, max(FEWEST_TOKENS, int(fitting)))


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


OnProgress = Callable[[str, float, float], None]
"""What the bench is doing, the share of the whole that is done, and an estimate of the seconds left."""


class Sweep:
    """One sweep in progress; its lists only grow. `answer_seconds` is what an answer is expected to take at first."""

    def __init__(
        self,
        machine: Machine,
        plan: BenchPlan,
        conditions: Sequence[Condition],
        prompts: Sequence[BenchPrompt],
        answer_seconds: float,
        on_progress: OnProgress = lambda *_: None,
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
        self._on_progress(what, self._elapsed / (self._elapsed + left) if left else 1.0, left)


def arm_names(arms: Sequence[Arm]) -> str:
    """The drafting arms by name."""
    return "K " + ", ".join(dict.fromkeys(str(arm.k) for arm in arms if arm.k != 0))


# Of the budget: for warming up every K.
WARM_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What the command line requested.

    `named`: the pair's own draft under the pair's name. `drafts` are further draft models. `source` is the file of the
    prompts, empty for the bundled ones. `constraint` is the shape of every answer, drafted or plain.
    """

    pair: Pair
    named: bool
    drafts: tuple[str, ...]
    drafters: tuple[str, ...]
    ks: tuple[Length, ...]
    temperatures: tuple[float, ...]
    rule: str
    seed: int
    prompts: tuple[BenchPrompt, ...]
    source: str
    max_tokens: int | None
    raw: bool
    fixed_length: bool
    budget_seconds: float
    cooldown_seconds: float
    force: bool
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Subjects:
    """What is measured, and where; the environment still lacks the machine's state before and after."""

    contenders: tuple[Contender, ...]
    environment: Environment


class Bench:
    """One bench: `run` it, then read `result` if it has `begun`. `tell` hears what the user should know first."""

    def __init__(
        self,
        request: BenchRequest,
        machine: Machine,
        subjects: Subjects,
        on_progress: OnProgress,
        tell: Callable[[str], None],
    ) -> None:
        self._request, self._machine, self._subjects = request, machine, subjects
        self._on_progress, self._tell = on_progress, tell
        self._sweep: Sweep | None = None
        self._before, self._after = MachineState(), MachineState()
        self._prompts: Sequence[BenchPrompt] = ()
        self._max_tokens = request.max_tokens or MAX_TOKENS

    @property
    def begun(self) -> bool:
        """Whether anything was measured."""
        return self._sweep is not None and bool(self._sweep.samples)

    def run(self) -> None:
        """Raises: DoesNotFit if no prompt leaves room for an answer."""
        request, began = self._request, self._machine.clock()
        self._prompts = self._fitting()
        pairs = product(request.temperatures, self._subjects.contenders)
        conditions = [Condition(contender, temperature) for temperature, contender in pairs]
        self._before = machine_state()
        self._on_progress("warming up", 0.0, request.budget_seconds)
        typical = sorted(self._prompts, key=lambda prompt: len(prompt.text))[len(self._prompts) // 2]
        coolest = request.temperatures[0]
        arms = [plain(coolest), *in_trial_order(conditions, coolest, request.ks)]
        try:
            prefill, step = self._machine.warm_up(typical, arms, WARM_SHARE * request.budget_seconds)
        except Cancelled:
            return
        left = max(request.budget_seconds - (self._machine.clock() - began), 0.0)
        if request.max_tokens is None:
            self._max_tokens = tokens_within(left, prefill, step, len(conditions))
        self._machine.limit(self._max_tokens)
        plan = BenchPlan(request.ks, left, request.cooldown_seconds, request.seed)
        expected = prefill + self._max_tokens * step
        self._sweep = Sweep(self._machine, plan, conditions, self._prompts, expected, self._on_progress)
        if self._sweep.fewest_seconds > left:
            minutes = ceil((self._sweep.fewest_seconds + self._machine.clock() - began) / 60)
            self._tell(f"this machine is slow: {FEWEST_PROMPTS} prompts take about {minutes} min, over --time-budget")
        try:
            self._sweep.run()
        finally:
            self._after = machine_state()

    def result(self) -> BenchResult:
        """What was measured so far. Call it only once the bench has `begun`."""
        assert self._sweep is not None
        sweep = self._sweep
        measured = tuple(sweep.samples), (), tuple(sweep.costs)
        return BenchResult(self._settings(), self._environment(), *measured, sweep.seconds, sweep.partial)

    def _fitting(self) -> list[BenchPrompt]:
        every, tokens = self._request.prompts, self._max_tokens
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

    def _settings(self) -> BenchSettings:
        request, kinds = self._request, kinds_of(self._prompts)
        bundled = f"{count(len(self._prompts), 'bundled prompt')} of {count(len(kinds), 'kind')}"
        prompts = f"{count(len(self._prompts), 'prompt')} of {request.source}" if request.source else bundled
        held = f", every answer held to a {request.constraint.noun}" if request.constraint else ""
        return BenchSettings(
            pair=request.pair.name,
            named=request.named,
            target=request.pair.target,
            contenders=self._subjects.contenders,
            ks=request.ks,
            temperatures=request.temperatures,
            rule=request.rule,
            kinds=kinds,
            prompts=prompts + held,
            max_tokens=self._max_tokens,
            ends="fixed" if request.fixed_length else "natural",
            raw=request.raw,
            budget_seconds=request.budget_seconds,
            cooldown_seconds=request.cooldown_seconds,
            seed=request.seed,
        )

    def _environment(self) -> Environment:
        return replace(self._subjects.environment, before=self._before, after=self._after)
