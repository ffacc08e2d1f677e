"""What was measured of each arm, which come next, and which K is recommended (pure). Values are logs of speed-ups.

The prompt is the unit, and arms are compared on the same prompts only. A tie within noise goes to the smaller K; a K
whose interval includes plain decoding is never called faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import inf, log
from statistics import fmean
from typing import Literal

from specdec_cli.apps.bench.result import Arm, Condition, Length, Sample
from specdec_cli.core.kinds import kind_of
from specdec_cli.core.speedup import CONFIDENCE
from specdec_cli.measure.intervals import FEWEST_PROMPTS, Interval, interval_over
from specdec_cli.measure.prompts import PromptId

# Prompts that two arms must share before one of them is dropped.
SURE_PROMPTS = 4
# Spread over the range, so that the best K is near one of the first.
FIRST: Sequence[Length] = ("auto", 2, 4, 1, 3, 6, 8)
# Log speed-up that may be given up for a smaller K where noise hides which one is faster.
GIVEN_UP = 0.02
RULE = "the smallest K within noise and 2 % of the fastest; a K is faster if its whole 95 % interval is above 1"


@dataclass(frozen=True, slots=True)
class Estimate:
    """One arm: its log speed-up on each prompt."""

    arm: Arm
    measured: Mapping[PromptId, float]

    @property
    def confirmed(self) -> bool:
        """Measured on enough prompts for an interval."""
        return len(self.measured) >= FEWEST_PROMPTS

    @property
    def interval(self) -> Interval:
        return interval_over(self.measured)

    def interval_among(self, arms: int) -> Interval:
        """Wider, so that at most one bench in 20 finds any of `arms` arms faster than it is (Bonferroni, one-sided)."""
        return interval_over(self.measured, 1 - 2 * (1 - CONFIDENCE) / max(arms, 2))

    def lead(self, other: Estimate) -> Interval | None:
        """This arm's advantage on the shared prompts; None where there are too few of them."""
        common = {at: value - other.measured[at] for at, value in self.measured.items() if at in other.measured}
        return interval_over(common) if len(common) >= FEWEST_PROMPTS else None

    def beats(self, other: Estimate) -> bool:
        """Measured to be faster, beyond noise."""
        lead = self.lead(other)
        return lead is not None and lead.prompts >= SURE_PROMPTS and lead.low > 0

    @property
    def loses(self) -> bool:
        """Measured to be slower than plain decoding, beyond noise."""
        return len(self.measured) >= SURE_PROMPTS and self.interval.high < 0


def arms_of(condition: Condition, ks: Sequence[Length]) -> list[Arm]:
    """The drafting arms, in the order of `ks`; only `auto` where the drafter itself is chosen each round."""
    mixed = kind_of(condition.contender.drafter).mixed
    return [condition.arm(k) for k in (("auto",) if mixed else ks) if k != 0]


def in_trial_order(conditions: Sequence[Condition], ks: Sequence[Length]) -> list[Arm]:
    """Every drafting arm of these conditions, contenders in turns: FIRST, then the other K as given."""
    order = [*(k for k in FIRST if k in ks), *(k for k in ks if k not in FIRST)]
    turns = zip_longest(*(arms_of(one, order) for one in conditions))
    return [arm for turn in turns for arm in turn if arm is not None]


def log_rates(samples: Iterable[Sample]) -> dict[PromptId, float]:
    """The mean logarithm of tokens a second on each prompt."""
    rates: dict[PromptId, list[float]] = {}
    for sample in samples:
        rates.setdefault(sample.prompt, []).append(log(sample.tokens_per_second))
    return {prompt: fmean(values) for prompt, values in rates.items()}


def estimates(arms: Iterable[Arm], samples: Sequence[Sample]) -> list[Estimate]:
    """What the samples say of those arms that were measured beside the baseline on any prompt."""
    found, confirmed = [], [sample for sample in samples if sample.phase == "confirm"]
    for arm in arms:
        base = log_rates(sample for sample in confirmed if sample.arm == arm.condition.arm(0))
        mine = log_rates(sample for sample in confirmed if sample.arm == arm)
        if logs := {at: rate - base[at] for at, rate in mine.items() if at in base}:
            found.append(Estimate(arm, logs))
    return found


def next_arms(found: Sequence[Estimate], waiting: Sequence[Arm]) -> list[Arm]:
    """What to measure on the next prompt, the most promising first; `found` are all of one temperature.

    Those that neither plain decoding nor the leader beats, then those `waiting`, by their distance to the leading K.
    """
    ranked = sorted(found, key=lambda one: one.interval.mean, reverse=True)
    left = [one.arm for one in ranked if not one.loses and not ranked[0].beats(one)]
    leader = next((one.arm.k for one in ranked if isinstance(one.arm.k, int)), None)

    def distance(arm: Arm) -> int:
        return abs(arm.k - leader) if isinstance(arm.k, int) and leader is not None else 0

    return [*left, *sorted(waiting, key=distance)]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`use`: K `k` is faster beyond noise. `safest`: nothing is, and `auto` is no loss. `don't`: plain decoding.

    `unknown`: no arm has enough prompts for an interval. `k` is the K whose `speedup` is given, under `don't` the best
    one; `chosen` is the K to type. The best of several arms is partly the luckiest, so the interval of `speedup` is
    that of `Estimate.interval_among`. `tied` are larger K that were not measurably faster.
    """

    condition: Condition
    answer: Literal["use", "safest", "don't", "unknown"]
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
    best = max(arms, key=lambda one: one.interval.mean)
    tied = [one for one in arms if one is best or _level(best, one)]
    tied.sort(key=lambda one: inf if one.arm.k == "auto" else one.arm.k)
    for one in tied:
        speedup = one.interval_among(len(arms)).exp()
        if speedup.low > 1:
            same = tuple(other.arm.k for other in tied if other is not one)
            return Recommendation(condition, "use", one.arm.k, speedup, same)
    # Nothing is proven, so the better guess decides. `auto` may win on a guess, and no other K: where a text does not
    # pay it stops drafting by itself, so that a wrong guess costs little.
    auto = next((one for one in arms if one.arm.k == "auto" and one.interval.mean >= 0), None)
    if auto is not None:
        return Recommendation(condition, "safest", "auto", auto.interval_among(len(arms)).exp())
    return Recommendation(condition, "don't", best.arm.k, best.interval_among(len(arms)).exp())


def better(found: Sequence[tuple[Recommendation, Sequence[Estimate]]]) -> Recommendation:
    """The fastest contender of one temperature; of several within noise the one named first."""
    used = [(one, next(e for e in arms if e.arm.k == one.k)) for one, arms in found if one.answer == "use"]
    if not used:
        return next((one for answer in ("safest", "don't") for one, _ in found if one.answer == answer), found[0][0])
    best = max((arm for _, arm in used), key=lambda arm: arm.interval.mean)
    return next(one for one, arm in used if arm is best or _level(best, arm))


def _level(best: Estimate, one: Estimate) -> bool:
    """Not measurably slower than the best, and estimated at most GIVEN_UP slower."""
    lead = best.lead(one)
    return lead is not None and lead.low <= 0 and max(lead.mean, best.interval.mean - one.interval.mean) < GIVEN_UP
