"""From a request to a result: warms up, sizes the answers, runs the bench. Law: `result` is right at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specdec_cli.bench.plan import MAX_TOKENS, Plan, kinds_of, tokens_within
from specdec_cli.bench.prompts import BenchPrompt
from specdec_cli.bench.result import Condition, Contender, Environment, Length, Result, Settings
from specdec_cli.bench.sweep import Bench, Cancelled, Machine, Progress, Report
from specdec_cli.errors import DoesNotFit
from specdec_cli.machine import MachineState, machine_state
from specdec_cli.pairs.pair import Pair


@dataclass(frozen=True, slots=True)
class Job:
    """What the command line asked for. `named`: the pair's own draft, under the pair's name; `drafts` are more of them;
    `source` the file of the prompts, empty for bundled ones."""

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


@dataclass(frozen=True, slots=True)
class About:
    """What does not change while the bench runs; of the environment, what brackets it is still missing."""

    contenders: tuple[Contender, ...]
    environment: Environment


class Warming(Machine, Protocol):
    """A Machine that can be told how long answers are."""

    def fitting(self, prompts: Sequence[BenchPrompt], tokens: int) -> list[BenchPrompt]:
        """Those that leave room for an answer of so many tokens."""

    def warm_up(self, prompt: BenchPrompt, conditions: Sequence[Condition], deepest: int) -> tuple[float, float]:
        """Throws short answers away; seconds of reading this prompt and of a plain step. May raise Cancelled."""

    def limit(self, max_tokens: int) -> None:
        """From now on answers have at most so many tokens."""


class Run:
    """One bench: `run` it, then read `result`; `begun` tells whether there is one."""

    def __init__(self, job: Job, machine: Warming, about: About, report: Report) -> None:
        self._job, self._machine, self._about, self._report = job, machine, about, report
        self._bench: Bench | None = None
        self._before, self._after = MachineState(), MachineState()
        self._prompts: Sequence[BenchPrompt] = ()
        self._max_tokens = job.max_tokens or MAX_TOKENS
        self.notices: list[str] = []

    @property
    def begun(self) -> bool:
        """Something was measured."""
        return self._bench is not None and bool(self._bench.samples)

    def run(self) -> None:
        """Raises: DoesNotFit if no prompt leaves room for an answer."""
        job, began = self._job, self._machine.clock()
        self._prompts = self._fitting()
        conditions = [Condition(one, heat) for heat in job.temperatures for one in self._about.contenders]
        plan = Plan(job.ks, job.budget_seconds, job.cooldown_seconds, job.seed)
        self._before = machine_state()
        self._report(Progress("warming up", 0.0, job.budget_seconds))
        typical = sorted(self._prompts, key=lambda prompt: len(prompt.text))[len(self._prompts) // 2]
        try:
            prefill, step = self._machine.warm_up(typical, conditions, plan.deepest)
        except Cancelled:
            return
        left = job.budget_seconds - (self._machine.clock() - began)
        if job.max_tokens is None:
            self._max_tokens = tokens_within(left, prefill, step, len(conditions))
        self._machine.limit(self._max_tokens)
        self._bench = Bench(self._machine, replace(plan, budget_seconds=left), conditions, self._prompts, self._report)
        try:
            self._bench.run()
        finally:
            self._after = machine_state()

    def result(self) -> Result:
        """What there is so far."""
        assert self._bench is not None
        bench = self._bench
        samples, rehearsals, costs = tuple(bench.samples), tuple(bench.rehearsals), tuple(bench.costs)
        return Result(self._settings(), self._environment(), samples, rehearsals, costs, bench.seconds, bench.partial)

    def _fitting(self) -> list[BenchPrompt]:
        every, tokens = self._job.prompts, self._max_tokens
        fitting = self._machine.fitting(every, tokens)
        if not fitting:
            raise DoesNotFit(
                f"none of the {len(every)} prompts leaves room for {tokens} tokens in these models' context",
                "ask for shorter answers (-n) or give shorter prompts (--prompts FILE)",
            )
        if len(fitting) < len(every):
            left_out = len(every) - len(fitting)
            self.notices.append(f"{left_out} of {len(every)} prompts leave no room for {tokens} tokens: left out")
        return fitting

    def _settings(self) -> Settings:
        job, kinds = self._job, kinds_of(self._prompts)
        bundled = f"{len(self._prompts)} bundled prompts of {len(kinds)} kinds"
        return Settings(
            pair=job.pair.name,
            named=job.named,
            target=job.pair.target,
            contenders=self._about.contenders,
            ks=job.ks,
            temperatures=job.temperatures,
            rule=job.rule,
            kinds=kinds,
            prompts=f"{len(self._prompts)} prompts of {job.source}" if job.source else bundled,
            max_tokens=self._max_tokens,
            ends="fixed" if job.fixed_length else "natural",
            raw=job.raw,
            budget_seconds=job.budget_seconds,
            cooldown_seconds=job.cooldown_seconds,
            seed=job.seed,
        )

    def _environment(self) -> Environment:
        return replace(self._about.environment, before=self._before, after=self._after)
