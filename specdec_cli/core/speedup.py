"""How much faster, with its interval (pure): Student's t over the log ratios of blocks; no figure without it.

A machine is faster and slower by the second, and drafted rounds and plain steps alike. So the seconds of plain decoding
are divided by those of drafting beside them: such a pair is a block. A race has eight, a bench one for each prompt, a
reply one for each run of plain steps. These are few, as measuring costs time, so a reply has two priors: what rounds
cost in the last replies, each as one more block, and how far its rounds scatter, as if some blocks had shown it.
Speed-up = tokens ÷ (plain rounds + c × drafted rounds), with c the cost of a drafted round in plain steps.
Letters: K drafted tokens. Rounds of one drafter and one K are of one kind: they cost alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import atan, cos, exp, inf, log, pi, sin, sqrt
from statistics import fmean, median
from typing import Any, NamedTuple

from specdec_cli.core.events import Round
from specdec_cli.core.gain import FEWEST_ROUNDS, Gain, break_even_share, speedup

CONFIDENCE = 0.95
# No figure is shown where fewer of the rounds drafted, nor before so many of them did.
LEAST_DRAFTED, FEWEST_DRAFTED = 0.05, 8
# Drafted rounds on each side of plain steps that these are compared with.
BESIDE = 4
# Blocks are taken to scatter (log) as rounds do, and by so much more, as if so many blocks had shown it: heat, other
# programs and a longer context change what a round costs.
DRIFT, PRIOR_FREEDOM = 0.06, 3
# Earlier replies that count, each as one block.
EARLIER = 2
# An interval that reaches to half and twice the estimate says nothing: the machine was too busy to tell.
WIDEST = 2.0
# A drafted round reads the weights at least once, as a plain step does: one that takes less than so many plain steps
# means that these were mistimed. So does one that takes more than all its passes one by one.
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


def t_interval(
    groups: Sequence[Sequence[float]], confidence: float = CONFIDENCE, scatter: float = 0.0, freedom: int = 0
) -> tuple[float, float]:
    """The mean of groups that weigh the same, and the half-width of its interval, unbounded for single values.

    The variance within groups is taken to be that of all, so there are values - groups degrees of freedom; a prior
    adds `freedom` of standard deviation `scatter`.
    """
    means = [fmean(group) for group in groups]
    total = sum(map(len, groups)) - len(groups) + freedom
    if total < 1:
        return fmean(means), inf
    squares = sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group)
    weight = sum(1 / len(group) for group in groups) / len(groups) ** 2
    variance = (squares + freedom * scatter**2) / total
    return fmean(means), t_quantile(total, confidence) * sqrt(variance * weight)


class Block(NamedTuple):
    """Plain decoding beside drafting: the seconds of each, and its rounds (or tokens, if both wrote the same text)."""

    plain_seconds: float
    plain_rounds: float
    drafted_seconds: float
    drafted_rounds: float

    @property
    def log_ratio(self) -> float:
        """Of the seconds of a plain round to those of a drafted one."""
        return log(self.plain_seconds / self.plain_rounds) - log(self.drafted_seconds / self.drafted_rounds)


def kind_means(kinds: Sequence[Hashable], seconds: Sequence[float]) -> list[float]:
    """What each round would have taken as the mean of its kind: all but what disturbed it."""
    by_kind: dict[Hashable, list[float]] = {}
    for kind, value in zip(kinds, seconds, strict=True):
        by_kind.setdefault(kind, []).append(value)
    means = {kind: fmean(values) for kind, values in by_kind.items()}
    return [means[kind] for kind in kinds]


@dataclass(frozen=True, slots=True)
class CostMemo:
    """What the last replies found: logarithms of the cost of a round of each kind in plain steps, one a reply."""

    costs: Mapping[RoundKind, tuple[float, ...]] = field(default_factory=dict)

    def to_dict(self, now_seconds: float) -> dict[str, Any]:
        """For the cost file; `now_seconds` since the epoch."""
        return {"at": now_seconds, "log_costs": [[*kind, *logs] for kind, logs in self.costs.items()]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], now_seconds: float) -> CostMemo:
        """What `to_dict` wrote; nothing of what is too old, or of another form."""
        try:
            costs = {(str(drafter), int(k)): tuple(map(float, logs)) for drafter, k, *logs in values["log_costs"]}
            age_seconds = now_seconds - float(values["at"])
        except (KeyError, TypeError, ValueError):
            return cls()
        return cls(costs) if 0 <= age_seconds <= BELIEVED_SECONDS else cls()


class Meter:
    """One reply beside plain decoding: `fold` each round, `add_plain_steps` what was measured between two of them.

    `memo` is what earlier replies found. `tokens` and `seconds` are those after the first round, whose pass belongs to
    the prompt.
    """

    def __init__(self, memo: CostMemo | None = None) -> None:
        self.tokens, self.seconds = 0, 0.0
        self._memo = memo or CostMemo()
        self._kinds: list[RoundKind] = []
        self._drafted_seconds: list[float] = []
        self._steps: list[tuple[int, float, int]] = []  # drafted rounds before steps in a row, their seconds, steps
        self._plain_run: list[float] = []
        self._plain_rounds = 0

    @property
    def rounds(self) -> int:
        """Those after the first."""
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
        return fmean(self._drafted_seconds) / exp(fmean(self._log_costs() or [0.0]))

    def fold(self, round: Round) -> None:
        """One round. Of plain ones in a row the first starts the pipeline and the last ends it: neither is a step.

        A pass that other replies shared is not compared.
        """
        if round.batch_size > 1:
            return
        seconds = max(round.draft_seconds + round.verify_seconds, LEAST_SECONDS)
        if not round.draft:  # of a long run only the steps next to a drafted round are compared with it
            self._plain_run = [*self._plain_run[-BESIDE - 1 :], seconds]
        else:
            self.add_plain_steps(self._plain_run[1:-1])
            self._plain_run = []
        if round.index == 0:
            return
        self.tokens += len(round.emitted)
        self.seconds += seconds
        if round.draft:
            self._kinds.append((round.drafter, len(round.draft)))
            self._drafted_seconds.append(seconds)
        else:
            self._plain_rounds += 1

    def add_plain_steps(self, seconds: Sequence[float]) -> None:
        """Plain steps in a row, measured after the last round."""
        if seconds:
            self._steps.append((len(self._kinds), max(sum(seconds), LEAST_SECONDS), len(seconds)))

    def gain(self, measuring_seconds: float = 0.0) -> Gain | None:
        """What drafting gained so far, less `measuring_seconds`; None where too little was measured, or the machine was
        too busy to tell.
        """
        logs = self._log_costs() if self.shows else []
        if not logs:
            return None
        mean, half = t_interval([logs], scatter=self._scatter(), freedom=PRIOR_FREEDOM)
        costs = [exp(mean), exp(mean - half), exp(mean + half)]
        busy = self.seconds / (self.seconds + measuring_seconds)
        estimate, high, low = (
            busy * speedup(self.tokens, self._plain_rounds + cost * len(self._kinds)) for cost in costs
        )
        mean_k = fmean(k for _, k in self._kinds)
        if max(high / estimate, estimate / low) > WIDEST or not LEAST_COST <= costs[0] <= 2 * mean_k + 1:
            return None
        return Gain(estimate, low, high, *(break_even_share(cost, mean_k) for cost in costs))

    def learn(self) -> CostMemo:
        """What the next reply knows: the median, as one disturbed step must not spoil the replies to come."""
        if not (self._steps and self.comparable):
            return self._memo
        middle, mean, costs = median(self._log_costs()), fmean(self._drafted_seconds), dict(self._memo.costs)
        for kind, seconds in dict(zip(self._kinds, self._usual(), strict=True)).items():
            costs[kind] = (*costs.get(kind, ()), middle + log(seconds / mean))[-EARLIER:]
        return CostMemo(costs)

    def _usual(self) -> list[float]:
        return kind_means(self._kinds, self._drafted_seconds)

    def _scatter(self) -> float:
        """Of a block of one step and its drafted rounds (log), if steps scatter from one to the next as these do."""
        even = [seconds / own for seconds, own in zip(self._drafted_seconds, self._usual(), strict=True)]
        noise = fmean(log(one / other) ** 2 for one, other in pairwise(even)) / 2
        return sqrt(noise * (1 + 1 / (2 * BESIDE)) + DRIFT**2)

    def _log_costs(self) -> list[float]:
        """The mean cost of a drafted round, by earlier replies' rounds of its most frequent kind and by each block."""
        usual, mean = self._usual(), fmean(self._drafted_seconds)
        kind, _ = Counter(self._kinds).most_common(1)[0]
        shift = log(mean / usual[self._kinds.index(kind)])
        logs = [known + shift for known in self._memo.costs.get(kind, ())]
        for place, seconds, steps in self._steps:
            beside = slice(max(place - BESIDE, 0), place + BESIDE)
            mean_rounds = sum(usual[beside]) / mean
            logs.append(-Block(seconds, steps, sum(self._drafted_seconds[beside]), mean_rounds).log_ratio)
        return logs
