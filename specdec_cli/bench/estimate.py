"""What is known of each arm, and what to measure next (pure). All values are natural logarithms of speed-ups.

Law: arms are compared on the same prompts only. Predictions are calibrated by the measured arms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval, by_kind, grouped, log_ratio, two_phase
from specdec_cli.bench.predict import CostCurve, cost_curve, log_speedup, predictable
from specdec_cli.bench.result import Arm, Condition, CostSample, Length, OfflineAcceptance, PromptId, Sample, plain

# Prompts that two arms must share before one of them is dropped.
SURE_PROMPTS = 4
# An arm slower than the leader by more than RIVAL is no rival. An unmeasured arm must lead by more than SURPRISE.
RIVAL, SURPRISE = 0.05, 0.01

Logs = Mapping[PromptId, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One arm: log speed-ups by prompt, predicted and measured; `calibration` is the mean of measured - predicted.

    `relative` is what measurements are compared with, prompt by prompt: the arm's own predictions, else those of the
    best arm. A prompt on which one arm is fast is a prompt on which the others are fast.
    """

    arm: Arm
    predicted: Logs
    measured: Logs
    calibration: float = 0.0
    relative: Logs = field(default_factory=dict)

    @property
    def confirmed(self) -> bool:
        """Measured on enough prompts for an interval."""
        return len(self.measured) >= FEWEST_PROMPTS

    @property
    def known(self) -> bool:
        return bool(self.predicted or self.measured)

    @property
    def score(self) -> float:
        """The best guess of the log speed-up over all prompts."""
        return self.interval.mean

    @property
    def interval(self) -> Interval:
        """Measured where confirmed, else predicted and calibrated; a predicted width is the spread over prompts."""
        if self.confirmed or not self.predicted:
            return carried_over(self.measured, self.relative)
        return over(self.predicted).shifted(self.calibration)

    def lead(self, other: Estimate) -> Interval | None:
        """This arm's measured advantage on the shared prompts; None where there are too few of them."""
        common = [at for at in self.measured if at in other.measured]
        if len(common) < FEWEST_PROMPTS:
            return None
        return over({at: self.measured[at] - other.measured[at] for at in common})

    def beats(self, other: Estimate) -> bool:
        """Measured to be faster, beyond noise."""
        lead = self.lead(other)
        return lead is not None and lead.prompts >= SURE_PROMPTS and lead.low > 0


def over(values: Logs) -> Interval:
    """The interval over prompts, by kind."""
    return by_kind(_groups(values))


def carried_over(measured: Logs, relative: Logs) -> Interval:
    """The interval over the measured prompts; over all prompts of `relative` where it has more (`two_phase`)."""
    off = {at: value - relative[at] for at, value in measured.items() if at in relative}
    if len(off) < max(len(measured), FEWEST_PROMPTS) or len(relative) == len(off):
        return over(measured)
    return two_phase(_groups(relative), _groups(off))


def _groups(values: Logs) -> dict[str, list[float]]:
    return grouped((prompt.kind, value) for prompt, value in values.items())


def measured(samples: Iterable[Sample]) -> dict[Arm, dict[PromptId, float]]:
    """Log speed-ups of each arm against the baseline of the same prompt."""
    rates: dict[Arm, dict[PromptId, float]] = {}
    for sample in samples:
        if sample.phase == "confirm":
            rates.setdefault(sample.arm, {})[sample.prompt] = sample.tokens_per_second
    return {
        arm: {at: log_ratio(rate, base[at]) for at, rate in found.items() if at in base}
        for arm, found in rates.items()
        if arm.k != 0
        for base in [rates.get(plain(arm.temperature), {})]
    }


def estimates(
    condition: Condition,
    ks: Sequence[Length],
    samples: Iterable[Sample],
    offline: Iterable[OfflineAcceptance],
    costs: Iterable[CostSample],
) -> list[Estimate]:
    """Every arm of `condition` but the baseline, in the order of `ks`; only `auto` where the contender chooses K."""
    curve = cost_curve(cost for cost in costs if cost.condition == condition)
    mine = [one for one in offline if one.condition == condition and predictable(one)]
    found, seen = [], measured(samples)
    for k in ("auto",) if condition.contender.chooses_k else ks:
        if k == 0:
            continue
        arm = Arm(condition.contender, condition.temperature, k)
        predicted = {} if curve is None or k == "auto" else predictions(mine, k, curve)
        found.append(Estimate(arm, predicted, seen.get(arm, {})))
    off = calibration(found)
    best = max((one.predicted for one in found if one.predicted), key=lambda logs: over(logs).mean, default={})
    return [replace(one, calibration=off, relative=one.predicted or best) for one in found]


def predictions(offline: Iterable[OfflineAcceptance], k: int, curve: CostCurve) -> dict[PromptId, float]:
    """log S(K) of each answer whose acceptance is known offline."""
    return {one.prompt: log_speedup(one, k, curve) for one in offline}


def calibration(found: Iterable[Estimate]) -> float:
    """Mean of measured - predicted over the confirmed arms, each arm with the same weight."""
    off = []
    for one in found:
        both = [value - one.predicted[at] for at, value in one.measured.items() if at in one.predicted]
        if len(both) >= FEWEST_PROMPTS:
            off.append(fmean(both))
    return fmean(off) if off else 0.0


def next_arms(found: Sequence[Estimate]) -> list[Arm]:
    """What to confirm on the next prompt; `found` are the arms of one temperature, of all contenders.

    The leader, its closest unbeaten rival, the best unbeaten arm of every other contender, and every unbeaten arm that
    cannot be predicted.
    """
    ranked = sorted((one for one in found if one.predicted), key=_rank, reverse=True)
    if not ranked:
        return [one.arm for one in found]
    leader = ranked[0]
    open_ = [one for one in ranked[1:] if not leader.beats(one)]
    mine = [one for one in open_ if one.arm.contender == leader.arm.contender]
    fresh = not leader.confirmed
    rivals = [one for one in mine if fresh or leader.score - one.score < RIVAL][:1]
    for contender in dict.fromkeys(one.arm.contender for one in ranked):
        others = [one for one in open_ if one.arm.contender == contender != leader.arm.contender]
        rivals += others[:1]
    rivals += [one for one in found if not one.predicted and not leader.beats(one)]
    return [one.arm for one in (leader, *rivals)]


def _rank(one: Estimate) -> float:
    return one.score - (0.0 if one.confirmed else SURPRISE)
