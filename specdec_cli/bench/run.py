"""From a request to a result: warms up, sizes the answers, runs the sweep. Law: `result` is valid at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from specdec_cli.bench.estimate import in_trial_order
from specdec_cli.bench.intervals import FEWEST_PROMPTS
from specdec_cli.bench.plan import MAX_TOKENS, BenchPlan, kinds_of, tokens_within
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import BenchResult, BenchSettings, Condition, Contender, Environment, Length, plain
from specdec_cli.bench.sweep import Cancelled, Machine, OnProgress, Progress, Sweep
from specdec_cli.errors import DoesNotFit
from specdec_cli.format import count
from specdec_cli.machine import MachineState, machine_state
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Constraint

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
        self._on_progress(Progress("warming up", 0.0, request.budget_seconds))
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
