"""How much faster, with its interval (pure). Paired log-ratios over blocks, by Student's t; no figure without it.

A machine is faster and slower by the second, and drafted rounds and plain steps alike. So the seconds of plain decoding
are divided by those of the drafted rounds beside them: the logarithm of such a ratio is a block. A race has eight of
them, a bench one for each prompt, a reply one for each run of plain steps. These are few, as measuring costs time, so a
reply starts from what earlier ones found: what rounds cost, and how far blocks scattered (a normal and inverse-gamma
prior: Gelman et al., Bayesian Data Analysis, 3.3).
Speed-up = tokens ÷ (plain rounds + c × drafted rounds), with c the cost of a drafted round in plain steps.
Letters: K drafted tokens. Rounds of one drafter and one K are of one kind: they cost alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import atan, cos, exp, inf, log, pi, sin, sqrt
from statistics import fmean, median
from typing import Any

from specdec_cli.core.events import Round
from specdec_cli.core.gain import FEWEST_ROUNDS, Gain, break_even_share, speedup

CONFIDENCE = 0.95
# No figure is shown where fewer of the rounds drafted, nor before so many of them did.
LEAST_DRAFTED, FEWEST_DRAFTED = 0.05, 8
# Drafted rounds on each side of plain steps that these are compared with.
BESIDE = 4
# How far (log) a cost in plain steps is off, however many rounds are averaged: a few steps are not a whole reply's, and
# heat, other programs and a longer context change it from reply to reply; and from one process to the next.
DRIFT, AGED_DRIFT = 0.04, 0.1
# No round is believed to scatter less.
LEAST_NOISE = 0.02
# A block this many times as far from the others as luck would have it is disturbed, and weighs accordingly less.
FARTHEST = 5.0
# Before any block is seen, blocks are taken to scatter by so much more (variance) than rounds do, as if so many had
# shown it; more than the last `MOST_FREEDOM` are forgotten, for what other programs do changes by the minute.
TYPICAL_SCATTER, TYPICAL_FREEDOM, MOST_FREEDOM = 1.5, 3, 12
# An interval that reaches to half and twice the estimate says nothing: the machine was too busy to tell.
WIDEST = 2.0
# A drafted round reads the weights once at least, as a plain step does; where it seems to take less than so many plain
# steps, these were disturbed. So they were where it seems to take more than all its passes one by one.
LEAST_COST = 0.9
# No clock tells less.
LEAST_SECONDS = 1e-9
# What an earlier run measured is not believed after so long.
BELIEVED_SECONDS = 30 * 86400.0

RoundKind = tuple[str, int]
"""The drafter of a round, and its K."""


@lru_cache(maxsize=1024)
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """t with P(|T| <= t) = `confidence` for Student's T with `freedom` degrees, by bisection of the exact series."""
    low, high = 0.0, 2.0
    while t_within(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < confidence else (low, middle)
    return high


def t_within(t: float, freedom: int) -> float:
    """P(|T| <= t): the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    square = cos(angle) ** 2
    odd = freedom % 2
    total, term = 0.0, cos(angle) if odd else 1.0
    for i in range(odd, freedom - 1, 2):
        total += term
        term *= square * (i + 1) / (i + 2)
    return (angle + sin(angle) * total) * 2 / pi if odd else sin(angle) * total


def t_interval(groups: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The mean of groups that weigh the same, and the half-width of its interval, unbounded for single values.

    The variance within groups is taken to be that of all, so there are values - groups degrees of freedom.
    """
    means = [fmean(group) for group in groups]
    freedom = sum(map(len, groups)) - len(groups)
    if freedom < 1:
        return fmean(means), inf
    squares = sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group)
    weight = sum(1 / len(group) for group in groups) / len(groups) ** 2
    return fmean(means), t_quantile(freedom, confidence) * sqrt(squares / freedom * weight)


def kind_means(kinds: Sequence[Hashable], seconds: Sequence[float]) -> list[float]:
    """What each round would have taken as the mean of its kind: all but what disturbed it."""
    by_kind: dict[Hashable, list[float]] = {}
    for kind, value in zip(kinds, seconds, strict=True):
        by_kind.setdefault(kind, []).append(value)
    means = {kind: fmean(values) for kind, values in by_kind.items()}
    return [means[kind] for kind in kinds]


@dataclass(frozen=True, slots=True)
class LogCost:
    """The logarithm of a cost in plain steps, and the variance of what is known about it."""

    log: float
    variance: float


@dataclass(frozen=True, slots=True)
class CostMemo:
    """What replies found: the cost of a round of each kind, and how far blocks scatter.

    `squares` / `freedom` is the variance of blocks over what the scatter of rounds tells.
    """

    costs: Mapping[RoundKind, LogCost] = field(default_factory=dict)
    squares: float = TYPICAL_SCATTER * TYPICAL_FREEDOM
    freedom: int = TYPICAL_FREEDOM

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """For the cost file; `now_seconds` since the epoch."""
        costs = [[drafter, k, cost.log, cost.variance] for (drafter, k), cost in self.costs.items()]
        return {"at": now_seconds, "costs": costs, "squares": self.squares, "freedom": self.freedom}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], now_seconds: float) -> CostMemo:
        """What `to_dict` wrote, believed less; nothing of what is too old, or of another form."""
        try:
            costs = {
                (str(drafter), int(k)): LogCost(float(mean), float(variance) + AGED_DRIFT**2)
                for drafter, k, mean, variance in values["costs"]
            }
            squares, freedom = float(values["squares"]), int(values["freedom"])
            age_seconds = now_seconds - float(values["at"])
        except (KeyError, TypeError, ValueError):
            return cls()
        return cls(costs, squares, freedom) if 0 <= age_seconds <= BELIEVED_SECONDS else cls()


class Meter:
    """One reply beside plain decoding: `fold` each round, `add_plain_steps` what was measured between two of them.

    `memo` is what earlier replies found.
    """

    def __init__(self, memo: CostMemo | None = None) -> None:
        self._memo = memo or CostMemo()
        self._kinds: list[RoundKind] = []
        self._seconds: list[float] = []
        self._blocks: list[tuple[int, float, int]] = []  # drafted rounds before it, seconds of a step, steps
        self._plain_run: list[float] = []
        self._plain_rounds = self._tokens = 0

    @property
    def rounds(self) -> int:
        """Those after the first, whose pass belongs to the prompt."""
        return self._plain_rounds + len(self._kinds)

    @property
    def comparable(self) -> bool:
        """Whether enough was drafted to compare plain steps with."""
        return len(self._kinds) >= FEWEST_DRAFTED

    @property
    def shows(self) -> bool:
        """Whether enough was drafted for a figure."""
        return self.comparable and self.rounds >= FEWEST_ROUNDS and len(self._kinds) >= LEAST_DRAFTED * self.rounds

    @property
    def step_seconds(self) -> float:
        """A plain step, roughly: at most a drafted round, while nothing is known. Needs `comparable`."""
        fit = self._fit()
        return fmean(self._seconds) / (exp(fit.cost.log) if fit else 1.0)

    def fold(self, round: Round) -> None:
        """One round. Of plain ones in a row the first starts the pipeline and the last ends it: neither is a step."""
        seconds = max(round.draft_seconds + round.verify_seconds, LEAST_SECONDS)
        if not round.draft:  # of a long run only the steps next to a drafted round are compared with it
            self._plain_run = [*self._plain_run[-BESIDE - 1 :], seconds]
        else:
            self.add_plain_steps(self._plain_run[1:-1])
            self._plain_run = []
        if round.index == 0:
            return
        self._tokens += len(round.emitted)
        if round.draft:
            self._kinds.append((round.drafter, len(round.draft)))
            self._seconds.append(seconds)
        else:
            self._plain_rounds += 1

    def add_plain_steps(self, seconds: Sequence[float]) -> None:
        """Plain steps in a row, measured after the last round: a block."""
        if seconds:
            self._blocks.append((len(self._kinds), max(fmean(seconds), LEAST_SECONDS), len(seconds)))

    def gain(self, busy_share: float = 1.0) -> Gain | None:
        """What drafting gained so far; None where too little was measured, or the machine was too busy to tell.

        `busy_share` is the part of the reply's time that was not spent on measuring.
        """
        fit = self._fit() if self.shows else None
        if fit is None:
            return None
        cost, mean_k = exp(fit.cost.log), fmean(k for _, k in self._kinds)
        drafted = cost * len(self._kinds)
        estimate = speedup(self._tokens, self._plain_rounds + drafted) * busy_share
        share = drafted / (self._plain_rounds + drafted)
        # Another run of the same text has as many rounds and plain steps, with other luck.
        luck = fit.noise**2 * (1 / self.rounds + 1 / self._tokens)
        quantile = t_quantile(fit.freedom)
        off = exp(quantile * sqrt(share**2 * fit.doubt + luck))
        if off > WIDEST or not LEAST_COST <= cost <= 2 * mean_k + 1:
            return None
        apart = quantile * sqrt(fit.doubt)
        pays_from = (break_even_share(exp(fit.cost.log + shift), mean_k) for shift in (0.0, -apart, apart))
        return Gain(estimate, estimate / off, estimate * off, *pays_from)

    def learn(self) -> CostMemo:
        """What the next reply knows: each kind's cost is moved as the mean was."""
        fit = self._fit() if self._blocks else None
        if fit is None:
            return self._memo
        mean, costs = fmean(self._seconds), dict(self._memo.costs)
        usual = dict(zip(self._kinds, kind_means(self._kinds, self._seconds), strict=True))
        for kind, seconds in usual.items():
            costs[kind] = LogCost(fit.cost.log + log(seconds / mean), fit.cost.variance)
        freedom = min(fit.freedom, MOST_FREEDOM)
        return CostMemo(costs, fit.squares * freedom / fit.freedom, freedom)

    def _fit(self) -> Fit | None:
        """The mean cost of a drafted round by the blocks of this reply and by what is known, each by its weight."""
        if not self.comparable:
            return None
        usual, mean = kind_means(self._kinds, self._seconds), fmean(self._seconds)
        even = [seconds / own for seconds, own in zip(self._seconds, usual, strict=True)]
        noise = max(sqrt(fmean(log(one / other) ** 2 for one, other in pairwise(even)) / 2), LEAST_NOISE)
        known = [
            (self._memo.costs[kind].log - log(own / mean), self._memo.costs[kind].variance)
            for kind, own in zip(self._kinds, usual, strict=True)
            if kind in self._memo.costs
        ]
        found = []
        if 2 * len(known) >= len(self._kinds):
            variance = fmean(one for _, one in known) + DRIFT**2
            found.append(LogCost(fmean(one for one, _ in known), variance))
        for at, step_seconds, steps in self._blocks:
            beside = even[max(at - BESIDE, 0) : at + BESIDE]
            variance = noise**2 * (1 / steps + 1 / len(beside)) + DRIFT**2
            found.append(LogCost(log(mean * fmean(beside) / step_seconds), variance))
        return join_estimates(found, noise, self._memo) if found else None


@dataclass(frozen=True, slots=True)
class Fit:
    """The cost of a reply's drafted rounds, the scatter (log) of one of them, and that of blocks as in `CostMemo`."""

    cost: LogCost
    noise: float
    squares: float
    freedom: int

    @property
    def doubt(self) -> float:
        """Variance of the cost, by how far blocks do scatter."""
        return self.cost.variance * self.squares / self.freedom


def join_estimates(found: Sequence[LogCost], noise: float, memo: CostMemo) -> Fit:
    """Blocks and what was known together; of a few that contradict each other those in the middle weigh most."""
    middle = median(one.log for one in found)
    weights = [1 / max(one.variance, ((one.log - middle) / FARTHEST) ** 2) for one in found]
    mean = sum(weight * one.log for weight, one in zip(weights, found, strict=True)) / sum(weights)
    squares = sum(weight * (one.log - mean) ** 2 for weight, one in zip(weights, found, strict=True))
    return Fit(LogCost(mean, 1 / sum(weights)), noise, memo.squares + squares, memo.freedom + len(found) - 1)
