"""Which K, and whether to draft at all (pure).

Law: a tie within noise goes to the smaller K; a K whose interval includes plain decoding is never called faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specdec_cli.bench.estimate import Estimate
from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.result import Condition, Length

# Log speed-up that may be given up for a smaller K where noise hides which one is faster.
GIVEN_UP = 0.02
RULE = "the smallest K within noise and 2 % of the fastest; none is called faster whose 95 % interval includes 1"
Choice = Literal["use", "safest", "don't", "unknown"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`use`: K `k` is faster beyond noise. `safest`: nothing is, and `auto` is no loss. `don't`: plain decoding.

    `unknown`: no arm has enough prompts for an interval. `k` is the K whose `speedup` is given, under `don't` the best
    one; `chosen` is the K to type. The best of several arms is partly the luckiest, so the interval of `speedup` is
    that of `Estimate.interval_among`. `tied` are larger K that were not measurably faster.
    """

    condition: Condition
    answer: Choice
    k: Length = "auto"
    speedup: Interval | None = None
    tied: tuple[Length, ...] = ()

    @property
    def chosen(self) -> Length:
        """The K to decode with."""
        return 0 if self.answer == "don't" else self.k

    def marks(self, k: Length) -> bool:
        """Whether a display marks this K: it is chosen, and on evidence."""
        return self.answer != "unknown" and self.chosen == k


def recommend(condition: Condition, found: Sequence[Estimate]) -> Recommendation:
    """The recommendation from the arms of `condition`; `unknown` where none has enough prompts."""
    arms = [one for one in found if one.confirmed]
    if not arms:
        return Recommendation(condition, "unknown")
    best = max(arms, key=lambda one: one.score)
    tied = sorted((one for one in arms if one is best or _level(best, one)), key=_size)
    for one in tied:
        speedup = one.interval_among(len(arms)).exp()
        if speedup.low > 1:
            same = tuple(other.arm.k for other in tied if other is not one)
            return Recommendation(condition, "use", one.arm.k, speedup, same)
    # Nothing is proven, so the better guess decides. `auto` may win on a guess, and no other K: where a text does not
    # pay it stops drafting by itself, so that a wrong guess costs little.
    auto = next((one for one in arms if one.arm.k == "auto" and one.score >= 0), None)
    if auto is not None:
        return Recommendation(condition, "safest", "auto", auto.interval_among(len(arms)).exp())
    return Recommendation(condition, "don't", best.arm.k, best.interval_among(len(arms)).exp())


def better(found: Sequence[tuple[Recommendation, Sequence[Estimate]]]) -> Recommendation:
    """The fastest contender of one temperature; of several within noise the one named first."""
    usable = [(advice, _arm(advice, estimates)) for advice, estimates in found if advice.answer == "use"]
    if not usable:
        return next((v for answer in ("safest", "don't") for v, _ in found if v.answer == answer), found[0][0])
    best = max(usable, key=lambda one: one[1].score)[1]
    return next(advice for advice, one in usable if one is best or _level(best, one))


def _arm(advice: Recommendation, found: Sequence[Estimate]) -> Estimate:
    return next(one for one in found if one.arm.k == advice.k)


def _level(best: Estimate, one: Estimate) -> bool:
    """Not measurably slower than the best, and estimated at most GIVEN_UP slower."""
    lead = best.lead(one)
    return lead is not None and lead.low <= 0 and max(lead.mean, best.score - one.score) < GIVEN_UP


def _size(one: Estimate) -> float:
    return float("inf") if one.arm.k == "auto" else one.arm.k
