"""What a result says: rows by K, by kind, and the recommendation (pure). Law: every figure follows from the result.

Letters: K draft length. Speed-ups are ratios to mlx-lm's plain decoding of the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from statistics import fmean, median

from specdec_cli.bench.estimate import Estimate, carried_over, estimates, over
from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval, by_kind
from specdec_cli.bench.plan import kinds_of
from specdec_cli.bench.predict import (
    CostCurve,
    RoundTotals,
    acceptance_by_position,
    cost_curve,
    predictable,
    totals,
)
from specdec_cli.bench.recommend import Recommendation, better, recommend
from specdec_cli.bench.result import Arm, BenchResult, Condition, Length, OfflineAcceptance, PromptId, Sample, plain
from specdec_cli.bench.rows import KindFigure, KindRow, Row, Source
from specdec_cli.stats import ratio

# Predictions of one kind that differ by less are a tie; the smaller K is named.
SAME = 0.01


@dataclass(frozen=True)
class Report:
    """Every figure about one condition."""

    result: BenchResult
    condition: Condition

    @cached_property
    def curve(self) -> CostCurve | None:
        return cost_curve(cost for cost in self.result.costs if cost.condition == self.condition)

    @cached_property
    def offline(self) -> list[OfflineAcceptance]:
        return [one for one in self.result.rehearsals if one.condition == self.condition and predictable(one)]

    @cached_property
    def estimates(self) -> list[Estimate]:
        found = self.result
        every = estimates(self.condition, found.settings.ks, found.samples, found.rehearsals, found.costs)
        return [one for one in every if one.known]

    @cached_property
    def recommendation(self) -> Recommendation:
        return recommend(self.condition, self.estimates)

    @cached_property
    def rows(self) -> list[Row]:
        """The baseline, then every known K."""
        return [self._plain(), *(self._row(one) for one in self.estimates)]

    @cached_property
    def kinds(self) -> list[KindRow]:
        """The best K of each kind with offline acceptance."""
        kinds = kinds_of([one.prompt for one in self.offline])
        return [row for row in map(self._kind, kinds) if row is not None]

    def totals(self, k: int, kind: str | None = None) -> RoundTotals:
        """Sums over all answers with offline acceptance, or over those of one kind."""
        if self.curve is None:
            return RoundTotals()
        mine = [one for one in self.offline if kind in (None, one.prompt.kind)]
        return sum((totals(one, k, self.curve) for one in mine), RoundTotals())

    def acceptance_by_position(self, k: int, kind: str | None = None) -> list[float]:
        """[j] = rounds that accepted j + 1 tokens or more / rounds that drafted as many."""
        return acceptance_by_position([one for one in self.offline if kind in (None, one.prompt.kind)], k)

    def samples(self, k: Length) -> list[Sample]:
        """The confirmed answers at this K; all answers of the baseline."""
        if k == 0:
            return [s for s in self.result.samples if s.arm == plain(self.condition.temperature)]
        arm = Arm(self.condition.contender, self.condition.temperature, k)
        return [s for s in self.result.samples if s.arm == arm]

    def _plain(self) -> Row:
        samples, rates = self.samples(0), self._plain_rates()
        rate = over(rates).exp() if rates else None
        one = Interval(1.0, 1.0, 1.0, len(rates))
        return Row(0, True, one if rates else None, rate, ttft_seconds=_ttft(samples), peak_memory_bytes=_peak(samples))

    def _plain_rates(self) -> dict[PromptId, float]:
        """Log tokens a second of the baseline by prompt."""
        rates: dict[PromptId, list[float]] = {}
        for sample in self.samples(0):
            rates.setdefault(sample.prompt, []).append(log(sample.tokens_per_second))
        return {prompt: fmean(values) for prompt, values in rates.items()}

    def _row(self, one: Estimate) -> Row:
        samples, k = self.samples(one.arm.k), one.arm.k
        # Teacher forcing is exact, and covers more prompts than were run.
        exact = k != "auto" and all(answer.replayed for answer in self.offline)
        found = _measured(samples) if k == "auto" or (one.confirmed and not exact) else self.totals(k)
        share = None
        if one.confirmed:
            spent = [(s.draft_seconds, s.draft_seconds + s.verify_seconds) for s in samples]
            share = ratio(sum(d for d, _ in spent), sum(t for _, t in spent))
        elif self.curve is not None and k != "auto":
            share = self.curve.draft[k] / self.curve.round(k)
        return Row(
            k,
            one.confirmed,
            one.interval.exp(),
            self._rate(one),
            found.acceptance_rate,
            found.judged_rate,
            found.mean_acceptance_length,
            share,
            self.curve.verify[k + 1] if self.curve is not None and k != "auto" else None,
            _ttft(samples) if one.confirmed else None,
            _peak(samples),
            bool(one.predicted),
        )

    def _rate(self, one: Estimate) -> Interval | None:
        rates = self._plain_rates()
        if one.confirmed or not one.predicted:
            relative = {at: rates[at] + value for at, value in one.relative.items() if at in rates}
            return carried_over({s.prompt: log(s.tokens_per_second) for s in self.samples(one.arm.k)}, relative).exp()
        both = {at: rates[at] + value + one.calibration for at, value in one.predicted.items() if at in rates}
        return over(both).exp() if both else None

    def of_kind(self, one: Estimate, kind: str) -> KindFigure | None:
        """Measured where enough prompts of `kind` were confirmed, else predicted and calibrated; None if neither."""
        seen = [value for at, value in one.measured.items() if at.kind == kind]
        guessed = [value + one.calibration for at, value in one.predicted.items() if at.kind == kind]
        confirmed = len(seen) >= FEWEST_PROMPTS
        values = seen if confirmed else guessed or seen
        if not values:
            return None
        source: Source = "measured" if confirmed else "predicted" if guessed else "too few"
        return KindFigure(by_kind({kind: values}).exp(), source)

    def _kind(self, kind: str) -> KindRow | None:
        """The smallest K that is predicted to be as fast as the fastest; plain decoding competes."""
        means: dict[Length, float] = {}
        for one in self.estimates:
            values = [value for at, value in one.predicted.items() if at.kind == kind]
            if values:
                means[one.arm.k] = fmean(values)
        if not means:
            return None
        k = next(k for k, mean in means.items() if mean >= max(means.values()) - SAME)
        figure = self.of_kind(next(one for one in self.estimates if one.arm.k == k), kind)
        if figure is None or figure.speedup.mean <= 1.0:
            return KindRow(kind, 0, Interval(1.0, 1.0, 1.0, figure.speedup.prompts if figure else 0), False, None)
        found = RoundTotals() if k == "auto" else self.totals(k, kind)
        return KindRow(kind, k, figure.speedup, figure.source == "measured", found.acceptance_rate)


def reports(result: BenchResult) -> list[Report]:
    """One for each condition."""
    return [Report(result, condition) for condition in result.conditions]


def recommended(found: Sequence[Report]) -> list[Report]:
    """The report of the best contender at each temperature."""
    chosen = []
    for temperature in dict.fromkeys(one.condition.temperature for one in found):
        mine = [one for one in found if one.condition.temperature == temperature]
        recommendation = better([(one.recommendation, one.estimates) for one in mine])
        chosen.append(next(one for one in mine if one.recommendation is recommendation))
    return chosen


def _measured(samples: Sequence[Sample]) -> RoundTotals:
    """Sums over the rounds of real answers, without their first tokens."""
    return RoundTotals(
        sum(s.target_passes - 1 for s in samples),
        sum(s.emitted_tokens - 1 for s in samples),
        sum(s.draft_n for s in samples),
        sum(s.draft_n_accepted for s in samples),
        sum(s.rejected_n for s in samples),
        sum(s.decode_seconds for s in samples),
    )


def _ttft(samples: Sequence[Sample]) -> float | None:
    return median(s.ttft_seconds for s in samples) if samples else None


def _peak(samples: Sequence[Sample]) -> int | None:
    return max((s.peak_memory_bytes for s in samples if s.peak_memory_bytes), default=None)
