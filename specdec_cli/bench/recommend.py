"""Which K, and whether to draft at all (pure).

Law: a tie within noise goes to the smaller K; a K whose interval includes plain decoding is never recommended.
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
RULE = "the smallest K within noise and 2 % of the fastest; none whose 95 % interval includes 1"
Choice = Literal["use", "don't", "unknown"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended K and its speed-up; under `don't` the best K, whose speed-up is not clearly above 1.

    `tied` are larger K that were not measurably faster.
    """

    condition: Condition
    answer: Choice
    k: Length = 0
    speedup: Interval | None = None
    tied: tuple[Length, ...] = ()


def recommend(condition: Condition, found: Sequence[Estimate]) -> Recommendation:
    """The recommendation from the confirmed arms of `condition`; `unknown` where no arm is confirmed."""
    arms = [one for one in found if one.confirmed]
    if not arms:
        return Recommendation(condition, "unknown")
    best = max(arms, key=lambda one: one.score)
    tied = sorted((one for one in arms if one is best or _level(best, one)), key=_size)
    for one in tied:
        if one.interval.low > 0:
            same = tuple(other.arm.k for other in tied if other is not one)
            return Recommendation(condition, "use", one.arm.k, one.interval.exp(), same)
    return Recommendation(condition, "don't", best.arm.k, best.interval.exp())


def better(found: Sequence[tuple[Recommendation, Sequence[Estimate]]]) -> Recommendation:
    """The fastest contender of one temperature; of several within noise the one named first."""
    usable = [(advice, _arm(advice, estimates)) for advice, estimates in found if advice.answer == "use"]
    if not usable:
        return next((v for v, _ in found if v.answer == "don't"), found[0][0])
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
