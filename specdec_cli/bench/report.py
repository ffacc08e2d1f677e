"""What a result says: rows by K, by kind, and the recommendation (pure). Law: every figure follows from the result.

Letters: K draft length. Speed-ups are ratios to mlx-lm's plain decoding of the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from statistics import fmean, median

from specdec_cli.bench.costs import CostCurve, RoundTotals, cost_curve, totals
from specdec_cli.bench.estimate import Estimate, arms_of, estimates, over
from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.plan import kinds_of
from specdec_cli.bench.recommend import Recommendation, better, recommend
from specdec_cli.bench.result import Arm, BenchResult, Condition, Length, PromptId, Sample, plain
from specdec_cli.bench.rows import KindRow, Row

# Speed-ups of one kind that differ by less are a tie; the smaller K is named.
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
    def estimates(self) -> list[Estimate]:
        """Every arm that was measured, in the order of the settings."""
        return estimates(arms_of(self.condition, self.result.settings.ks), self.result.samples)

    @cached_property
    def recommendation(self) -> Recommendation:
        return recommend(self.condition, self.estimates)

    @cached_property
    def rows(self) -> list[Row]:
        """The baseline, then every K that was measured."""
        return [self._plain(), *map(self._row, self.estimates)]

    @cached_property
    def prompts(self) -> list[PromptId]:
        """Those that an arm has answered beside the baseline."""
        return list(dict.fromkeys(at for one in self.estimates for at in one.measured))

    @cached_property
    def kinds(self) -> list[KindRow]:
        """The best K of each kind that has enough prompts."""
        return [row for row in map(self._kind, kinds_of(self.prompts)) if row is not None]

    def samples(self, k: Length) -> list[Sample]:
        """All answers at this K."""
        arm = plain(self.condition.temperature) if k == 0 else self._arm(k)
        return [s for s in self.result.samples if s.arm == arm]

    def at_fixed_k(self, kind: str | None = None) -> list[Sample]:
        """The drafted answers whose K was a number, of one kind or of all."""
        found = [s for one in self.estimates if one.arm.k != "auto" for s in self.samples(one.arm.k)]
        return [sample for sample in found if kind in (None, sample.prompt.kind)]

    def totals(self, k: Length, kind: str | None = None) -> RoundTotals:
        """Sums over the rounds at this K, of all answers or of those of one kind."""
        return totals(sample for sample in self.samples(k) if kind in (None, sample.prompt.kind))

    def of_kind(self, one: Estimate, kind: str) -> Interval | None:
        """The speed-up of an arm on one kind of text; None where it has not met it."""
        seen = {at: value for at, value in one.measured.items() if at.kind == kind}
        return over(seen).exp() if seen else None

    def _arm(self, k: Length) -> Arm:
        return Arm(self.condition.contender, self.condition.temperature, k)

    def _plain(self) -> Row:
        samples, rates = self.samples(0), self._rates(0)
        rate = over(rates).exp() if rates else None
        one = Interval(1.0, 1.0, 1.0, len(rates))
        return Row(0, True, one if rates else None, rate, ttft_seconds=_ttft(samples), peak_memory_bytes=_peak(samples))

    def _rates(self, k: Length) -> dict[PromptId, float]:
        """Log tokens a second by prompt."""
        rates: dict[PromptId, list[float]] = {}
        for sample in self.samples(k):
            rates.setdefault(sample.prompt, []).append(log(sample.tokens_per_second))
        return {prompt: fmean(values) for prompt, values in rates.items()}

    def _row(self, one: Estimate) -> Row:
        k = one.arm.k
        samples, found = self.samples(k), self.totals(k)
        return Row(
            k,
            one.confirmed,
            one.interval.exp(),
            over(self._rates(k)).exp(),
            found.acceptance_rate,
            found.judged_rate,
            found.mean_acceptance_length,
            found.draft_share,
            self.curve.verify.get(k + 1) if self.curve is not None and k != "auto" else None,
            _ttft(samples),
            _peak(samples),
        )

    def _kind(self, kind: str) -> KindRow | None:
        """The smallest K that was measured to be as fast as the fastest; plain decoding competes."""
        known = {one.arm.k: self.of_kind(one, kind) for one in self.estimates}
        found = {k: seen for k, seen in known.items() if seen is not None and seen.prompts >= FEWEST_PROMPTS}
        if not found:
            return None
        best = max(log(seen.mean) for seen in found.values())
        k, speedup = next((k, seen) for k, seen in found.items() if log(seen.mean) >= best - SAME)
        if speedup.mean <= 1.0:
            return KindRow(kind, 0, Interval(1.0, 1.0, 1.0, speedup.prompts), None)
        return KindRow(kind, k, speedup, self.totals(k, kind).acceptance_rate)


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


def _ttft(samples: Sequence[Sample]) -> float | None:
    return median(s.ttft_seconds for s in samples) if samples else None


def _peak(samples: Sequence[Sample]) -> int | None:
    return max((s.peak_memory_bytes for s in samples if s.peak_memory_bytes), default=None)
