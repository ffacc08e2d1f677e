"""How much faster a reply was than plain decoding, with its interval (pure). Law: plain steps are compared with the
drafted rounds beside them, never with the reply's average.

A machine is faster and slower by the second, and drafted rounds and plain steps alike. So each cluster of plain steps
is divided by the mean of the drafted rounds around it. How far luck may move such a ratio is read off the rounds of the
last replies: every drafted round is divided by the rounds around it in the same way (a placebo, whose true ratio is 1).
How much of that spread is left in a few steps is fitted. With c, the cost of a drafted round in plain steps, the reply
was tokens ÷ (plain rounds + c × drafted rounds) times as fast.
Letters: K drafted tokens. Rounds of one drafter and one K are of one kind: they cost alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median

from specdec_cli.events import Round
from specdec_cli.gain import FEWEST_ROUNDS, Gain
from specdec_cli.session.round_costs import Doubted, KnownCosts, RoundKind
from specdec_cli.session.scatter import BESIDE_ROUNDS, Scatter
from specdec_cli.speedup import TYPICAL_ROW_COST, break_even_share, speedup
from specdec_cli.student import t_quantile

# No figure is shown where fewer of the rounds drafted.
LEAST_DRAFTED = 0.05
# A round longer than so many medians of its kind (a kernel compiled, a lid closed) counts as one that long.
LONGEST = 10.0
# A plain step is cut, too, at so many standard deviations of the rounds over the median step: in so short a sample a
# spike that is rare among rounds would weigh too much.
OUTLYING = 4.0
# Rounds of one kind whose cost is worth keeping.
FEWEST_OF_KIND = 3
# Drafted rounds before anything is compared with them.
FEWEST_BESIDE = 8
# An interval that reaches to half and twice the estimate says nothing: the machine was too busy to tell.
WIDEST = 2.0
# A drafted round reads the weights once at least, as a plain step does; where it seems to take less than so many plain
# steps, these were disturbed. So they were where it seems to take more than all its passes one by one.
LEAST_COST = 0.9
# How much (log) a cost in plain steps changes from reply to reply: heat, other programs, a longer context.
CHANGE = 0.025
# Share of the variance of as many rounds as take as long as the steps that is left in their ratio: what interrupts
# single passes averages out over more of them. Fitted, as ISOLATED is, to simulated and real replies.
LUCK_LEFT = 0.3
# How far (log) all plain steps of a reply may be off to one side: isolated ones are not quite those of a whole reply.
ISOLATED = 0.02
# Rounds for each degree of freedom, as their neighbourhoods overlap; and the most degrees, beyond which t is normal.
FREEDOM_ROUNDS, MOST_FREEDOM = 3, 60


@dataclass(frozen=True, slots=True)
class Cluster:
    """Seconds of counted plain steps in a row, before the drafted round number `at`."""

    at: int
    seconds: tuple[float, ...]


class Comparison:
    """One reply beside plain decoding: `fold` each round, `measured` each cluster of extra plain steps.

    `known` is what earlier replies found.
    """

    def __init__(self, known: KnownCosts | None = None) -> None:
        self._before = known or KnownCosts()
        self._known = self._before.costs
        self._kinds: list[RoundKind] = []
        self._seconds: list[float] = []
        self._clusters: list[Cluster] = []
        self._run: list[float] = []
        self._even: Scatter | None = None
        self._plain_rounds = self._tokens = 0

    @property
    def rounds(self) -> int:
        return self._plain_rounds + len(self._kinds)

    @property
    def step_seconds(self) -> float | None:
        """A plain step, roughly; None while nothing was drafted."""
        if not self._seconds:
            return None
        mean, k = fmean(self._seconds), fmean(k for _, k in self._kinds)
        cost = self._cost()
        return mean / (exp(cost.log) if cost else 1 + TYPICAL_ROW_COST * k)

    @property
    def shows(self) -> bool:
        """Whether enough was drafted for a figure."""
        drafted = len(self._kinds)
        return self.rounds >= FEWEST_ROUNDS and drafted >= max(FEWEST_BESIDE, LEAST_DRAFTED * self.rounds)

    @property
    def comparable(self) -> bool:
        """Whether enough was drafted to compare plain steps with."""
        return len(self._kinds) >= FEWEST_BESIDE

    def begin(self, first: Round) -> None:
        """The first round of the reply, whose pass belongs to the prompt."""
        self._run = [] if first.draft else [first.verify_seconds]

    def fold(self, round: Round) -> None:
        """One round after the first.

        Of plain rounds in a row the first starts the pipeline and the last ends it: neither is a measure of a step.
        """
        self._tokens += len(round.emitted)
        seconds = round.draft_seconds + round.verify_seconds
        if not round.draft:
            self._plain_rounds += 1
            # Only the plain steps next to a drafted round are compared with it.
            self._run = [*self._run[-BESIDE_ROUNDS[0] - 1 :], seconds]
            return
        self.measured(self._run[1:-1])
        self._run = []
        self._kinds.append((round.drafter, len(round.draft)))
        self._seconds.append(seconds)
        self._even = None

    def measured(self, seconds: Sequence[float]) -> None:
        """Counted plain steps, measured after the last round."""
        if seconds:
            self._clusters.append(Cluster(len(self._kinds), tuple(seconds)))

    def gain(self, busy_share: float = 1.0) -> Gain | None:
        """What drafting gained so far; None where too few rounds, or nothing, was measured.

        `busy_share` is the part of the reply's time that was not spent on measuring.
        """
        cost = self._cost() if self.shows else None
        if cost is None:
            return None
        n = len(self._kinds)
        drafted = exp(cost.log) * n
        estimate = speedup(self._tokens, self._plain_rounds + drafted) * busy_share
        # Another paired run has other luck: the scatter of as many rounds and of as many plain steps.
        luck = self._scatter().noise ** 2 * (1 / self.rounds + 1 / self._tokens)
        share = drafted / (self._plain_rounds + drafted)
        doubt = cost.variance + self._before.unevenness(self._surprise())
        quantile = t_quantile(min(max(n // FREEDOM_ROUNDS, 1), MOST_FREEDOM))
        off = exp(quantile * sqrt(share**2 * doubt + luck))
        mean_k, apart = fmean(k for _, k in self._kinds), quantile * sqrt(doubt)
        if off > WIDEST or not LEAST_COST <= exp(cost.log) <= 2 * mean_k + 1:
            return None
        pays_from = (break_even_share(exp(cost.log + shift), mean_k) for shift in (0.0, -apart, apart))
        return Gain(estimate, estimate / off, estimate * off, *pays_from)

    def learned(self) -> KnownCosts:
        """What `known` becomes: the cost of a round of each kind that was drafted often enough."""
        own, measured = self._own(), self._measured()
        if own is None or measured is None:
            return self._before
        shape, counts, noise = self._shape(), Counter(self._kinds), self._scatter().noise
        found = {}
        for kind, count in counts.items():
            if count >= FEWEST_OF_KIND:
                seen = Doubted(own.log + log(shape[kind]), own.variance + noise**2 / count)
                found[kind] = seen.joined(self._changed(kind)) if kind in self._known else seen
        return self._before.learned({**self._known, **found}, measured.variance, self._surprise())

    def _cost(self) -> Doubted | None:
        """The mean cost of a drafted round, by this reply and by what is known."""
        known, own = self._expected(), self._own()
        if known is None or own is None:
            return own or known
        return own.joined(known)

    def _expected(self) -> Doubted | None:
        """The same by what is known of the kinds that make up most of this reply."""
        if not self._kinds:
            return None
        shape, counts = self._shape(), Counter(self._kinds)
        known = {kind: count for kind, count in counts.items() if kind in self._known}
        if not known or 2 * sum(known.values()) < len(self._kinds):
            return None
        weights = {kind: shape[kind] * count for kind, count in known.items()}
        total = sum(weights.values())
        level = sum(weight * (self._known[kind].log - log(shape[kind])) for kind, weight in weights.items()) / total
        off = sum(weight * sqrt(self._changed(kind).variance) for kind, weight in weights.items()) / total
        return Doubted(level, off**2)

    def _surprise(self) -> float | None:
        """How far (log, squared) this reply's own cost is from what was known; None where either is missing."""
        own, known = self._own(), self._expected()
        return (own.log - known.log) ** 2 if own and known else None

    def _changed(self, kind: RoundKind) -> Doubted:
        """What is known of `kind`, and may have changed since the last reply."""
        known = self._known[kind]
        return Doubted(known.log, known.variance + CHANGE**2)

    def _own(self) -> Doubted | None:
        """The same by the plain steps of this reply.

        Whether other programs come and go shows in the scatter of one reply by chance only, and they may come just
        then: so luck is that of the last replies together.
        """
        measured = self._measured()
        if measured is None:
            return None
        luck = self._before.usual_luck(measured.variance)
        # Interruptions are rare and long, so a short sample is mostly below its mean: by half a variance, as of a
        # log-normal one. By as much again, because replies that contradict each other are joined at what most say.
        return Doubted(measured.log - luck, LUCK_LEFT * luck + ISOLATED**2)

    def _measured(self) -> Doubted | None:
        """The same by each cluster of plain steps, weighed by how far luck may have moved it."""
        if not self._clusters or not self.comparable:
            return None
        scatter = self._scatter()
        levels = [scatter.level(cluster.at, cluster.at, BESIDE_ROUNDS[0]) for cluster in self._clusters]
        ratios = [step / level for c, level in zip(self._clusters, levels, strict=True) for step in c.seconds]
        typical = median(ratios)
        found = [_compared(scatter, cluster, typical) for cluster in self._clusters]
        weights = sum(1 / variance for _, variance in found)
        ratio = sum(ratio / variance for ratio, variance in found) / weights
        return Doubted(-log(ratio), 1 / weights)

    def _scatter(self) -> Scatter:
        """Each drafted round as if it had cost the mean of all, the longest cut."""
        if self._even is None:
            shape = self._shape()
            even = [value / shape[kind] for kind, value in zip(self._kinds, self._seconds, strict=True)]
            self._even = Scatter(_clipped(even))
        return self._even

    def _shape(self) -> dict[RoundKind, float]:
        """The cost of a round of each kind over the mean of all drafted rounds.

        A kind that was seen once says nothing about its moment: a reply's last rounds are shorter than all others.
        """
        by_kind: dict[RoundKind, list[float]] = {}
        for kind, seconds in zip(self._kinds, self._seconds, strict=True):
            by_kind.setdefault(kind, []).append(seconds)
        shape = {kind: fmean(_clipped(found)) for kind, found in by_kind.items()}
        mean = sum(shape[kind] * len(found) for kind, found in by_kind.items()) / len(self._kinds)
        return {kind: value / mean for kind, value in shape.items()}


def _compared(scatter: Scatter, cluster: Cluster, typical: float) -> tuple[float, float]:
    """A plain step over the rounds around it, and the variance of that ratio by luck alone."""
    # As many rounds as take as long as these steps: what interrupts a pass strikes by the second.
    alike = max(round(len(cluster.seconds) * typical), 1)
    placebo = scatter.placebo(alike, ended=cluster.at == scatter.rounds)
    level = scatter.level(cluster.at, cluster.at, placebo.beside) * placebo.mean
    most = typical * min(1 + OUTLYING * scatter.noise, LONGEST)
    return fmean([min(step / level, most) for step in cluster.seconds]), placebo.spread**2


def _clipped(seconds: Sequence[float]) -> list[float]:
    most = LONGEST * median(seconds)
    return [min(value, most) for value in seconds]
