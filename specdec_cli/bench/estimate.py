"""What was measured of each arm, and which arms come next (pure). All values are natural logarithms of speed-ups.

Law: arms are compared on the same prompts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import log
from statistics import fmean

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval, by_kind, grouped
from specdec_cli.bench.result import Arm, Condition, Length, PromptId, Sample, plain
from specdec_cli.meter import CONFIDENCE

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
        return over(self.measured)

    def interval_among(self, arms: int) -> Interval:
        """Wider, so that at most one bench in 20 finds any of `arms` arms faster than it is (Bonferroni, one-sided)."""
        return over(self.measured, 1 - 2 * (1 - CONFIDENCE) / max(arms, 2))

    @property
    def score(self) -> float:
        """The best guess of the log speed-up over all prompts."""
        return self.interval.mean

    def lead(self, other: Estimate) -> Interval | None:
        """This arm's advantage on the shared prompts; None where there are too few of them."""
        common = [at for at in self.measured if at in other.measured]
        if len(common) < FEWEST_PROMPTS:
            return None
        return over({at: self.measured[at] - other.measured[at] for at in common})

    def beats(self, other: Estimate) -> bool:
        """Measured to be faster, beyond noise."""
        lead = self.lead(other)
        return lead is not None and lead.prompts >= SURE_PROMPTS and lead.low > 0

    @property
    def loses(self) -> bool:
        """Measured to be slower than plain decoding, beyond noise."""
        return len(self.measured) >= SURE_PROMPTS and self.interval.high < 0


def over(values: Logs, confidence: float = CONFIDENCE) -> Interval:
    """The interval over prompts, by kind."""
    return by_kind(grouped((at.kind, value) for at, value in values.items()), confidence)


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
