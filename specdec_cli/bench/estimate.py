"""What was measured of each arm, which come next, and which K is recommended (pure). Values are logs of speed-ups.

The prompt is the unit, and arms are compared on the same prompts only. A tie within noise goes to the smaller K; a K
whose interval includes plain decoding is never called faster. A percentile bootstrap of eight prompts covers 88 %; the
t-interval of eight normal values covers 95 % exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import exp, log
from statistics import fmean
from typing import Literal

from specdec_cli.bench.result import Arm, Condition, Length, PromptId, Sample, plain
from specdec_cli.meter import CONFIDENCE, t_interval

# Fewer prompts give no useful interval.
FEWEST_PROMPTS = 3
Groups = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, of `prompts` prompts."""

    mean: float
    low: float
    high: float
    prompts: int

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def exp(self) -> Interval:
        """From logarithms to ratios; the mean becomes the geometric mean."""
        return Interval(exp(self.mean), exp(self.low), exp(min(self.high, 700.0)), self.prompts)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def by_kind(values: Groups, confidence: float = CONFIDENCE) -> Interval:
    """The mean over kinds, equally weighted, where every kind has at least two prompts; else over prompts.

    The kinds are chosen, not sampled, so only the spread within kinds is an error. It is assumed equal in all kinds
    (pooled), with prompts - kinds degrees of freedom.
    """
    groups = [group for group in values.values() if group]
    if not groups or min(map(len, groups)) < 2:
        groups = [[value for group in groups for value in group]]
    mean, half = t_interval(groups, confidence)
    return Interval(mean, mean - half, mean + half, sum(map(len, groups)))


# Prompts that two arms must share before one of them is dropped.
SURE_PROMPTS = 4
# Spread over the range, so that the best K is near one of the first.
FIRST: Sequence[Length] = ("auto", 2, 4, 1, 3, 6, 8)

Logs = Mapping[PromptId, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One arm: its log speed-up on each prompt."""

    arm: Arm
    measured: Logs

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

    @property
    def score(self) -> float:
        """The best guess of the log speed-up over all prompts."""
        return self.interval.mean

    def lead(self, other: Estimate) -> Interval | None:
        """This arm's advantage on the shared prompts; None where there are too few of them."""
        common = [at for at in self.measured if at in other.measured]
        if len(common) < FEWEST_PROMPTS:
            return None
        return interval_over({at: self.measured[at] - other.measured[at] for at in common})

    def beats(self, other: Estimate) -> bool:
        """Measured to be faster, beyond noise."""
        lead = self.lead(other)
        return lead is not None and lead.prompts >= SURE_PROMPTS and lead.low > 0

    @property
    def loses(self) -> bool:
        """Measured to be slower than plain decoding, beyond noise."""
        return len(self.measured) >= SURE_PROMPTS and self.interval.high < 0


def interval_over(values: Logs, confidence: float = CONFIDENCE) -> Interval:
    """The interval over prompts, by kind."""
    groups: dict[str, list[float]] = {}
    for at, value in values.items():
        groups.setdefault(at.kind, []).append(value)
    return by_kind(groups, confidence)


def arms_of(condition: Condition, ks: Sequence[Length]) -> list[Arm]:
    """The drafting arms, in the order of `ks`; only `auto` where the contender chooses K."""
    lengths = ("auto",) if condition.contender.chooses_k else tuple(k for k in ks if k != 0)
    return [Arm(condition.contender, condition.temperature, k) for k in lengths]


def in_trial_order(conditions: Sequence[Condition], temperature: float, ks: Sequence[Length]) -> list[Arm]:
    """Every drafting arm at this temperature, contenders in turns: FIRST, then the other K as given."""
    order = [*(k for k in FIRST if k in ks), *(k for k in ks if k not in FIRST)]
    turns = zip_longest(*(arms_of(one, order) for one in conditions if one.temperature == temperature))
    return [arm for turn in turns for arm in turn if arm is not None]


def estimates(arms: Iterable[Arm], samples: Iterable[Sample]) -> list[Estimate]:
    """What the samples say of those arms that were measured beside the baseline on any prompt."""
    rates: dict[Arm, dict[PromptId, list[float]]] = {}
    for sample in samples:
        if sample.phase == "confirm":
            rates.setdefault(sample.arm, {}).setdefault(sample.prompt, []).append(log(sample.tokens_per_second))
    found = []
    for arm in arms:
        base = rates.get(plain(arm.temperature), {})
        logs = {at: fmean(mine) - fmean(base[at]) for at, mine in rates.get(arm, {}).items() if at in base}
        if logs:
            found.append(Estimate(arm, logs))
    return found


def next_arms(found: Sequence[Estimate], waiting: Sequence[Arm]) -> list[Arm]:
    """What to measure on the next prompt, the most promising first; `found` are all of one temperature.

    Those that neither plain decoding nor the leader beats, then those `waiting`, by their distance to the leading K.
    """
    ranked = sorted(found, key=lambda one: one.score, reverse=True)
    left = [one.arm for one in ranked if not one.loses and not ranked[0].beats(one)]
    leader = next((one.arm.k for one in ranked if isinstance(one.arm.k, int)), None)

    def distance(arm: Arm) -> int:
        return abs(arm.k - leader) if isinstance(arm.k, int) and leader is not None else 0

    return [*left, *sorted(waiting, key=distance)]


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
