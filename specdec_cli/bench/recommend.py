"""Which K, and whether to draft at all (pure).

Law: ties inside noise go to the smaller K, and nothing is recommended whose interval reaches down to plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specdec_cli.bench.estimate import Estimate
from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.result import Condition, Length

# What may be given up for a smaller K where noise leaves open which is faster.
GIVEN_UP = 0.02
RULE = "the smallest K within noise and 2 % of the fastest; none whose 95 % interval includes 1"
Answer = Literal["use", "don't", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`speedup` is that of the recommended arm; under `don't` that of the best one, which is not clearly above 1.

    `tied` are larger K that came out no different.
    """

    condition: Condition
    answer: Answer
    k: Length = 0
    speedup: Interval | None = None
    tied: tuple[Length, ...] = ()


def recommend(condition: Condition, found: Sequence[Estimate]) -> Verdict:
    """From the confirmed arms of `condition`; `unknown` where none was measured on enough prompts."""
    arms = [one for one in found if one.confirmed]
    if not arms:
        return Verdict(condition, "unknown")
    best = max(arms, key=lambda one: one.score)
    tied = sorted((one for one in arms if one is best or _level(best, one)), key=_size)
    for one in tied:
        if one.interval.low > 0:
            same = tuple(other.arm.k for other in tied if other is not one)
            return Verdict(condition, "use", one.arm.k, one.interval.exp(), same)
    return Verdict(condition, "don't", best.arm.k, best.interval.exp())


def better(verdicts: Sequence[tuple[Verdict, Sequence[Estimate]]]) -> Verdict:
    """The fastest contender of one temperature; of two inside noise the one named first."""
    usable = [(verdict, _arm(verdict, found)) for verdict, found in verdicts if verdict.answer == "use"]
    if not usable:
        return next((v for v, _ in verdicts if v.answer == "don't"), verdicts[0][0])
    best = max(usable, key=lambda one: one[1].score)[1]
    return next(verdict for verdict, one in usable if one is best or _level(best, one))


def _arm(verdict: Verdict, found: Sequence[Estimate]) -> Estimate:
    return next(one for one in found if one.arm.k == verdict.k)


def _level(best: Estimate, one: Estimate) -> bool:
    """Not measurably slower than the best, nor by more than GIVEN_UP to all appearances."""
    lead = best.lead(one)
    return lead is not None and lead.low <= 0 and max(lead.mean, best.score - one.score) < GIVEN_UP


def _size(one: Estimate) -> float:
    return float("inf") if one.arm.k == "auto" else one.arm.k
