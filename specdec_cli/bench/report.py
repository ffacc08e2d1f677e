"""What a result says: rows by K and by kind, costs of a round, and two results side by side (pure).

Every figure follows from the result. Letters: K draft length, n rows of a target pass; costs are in plain steps.
Speed-ups are ratios to mlx-lm's plain decoding of the same prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from math import log
from statistics import fmean, median
from typing import Any, Literal

from specdec_cli.bench.estimate import (
    FEWEST_PROMPTS,
    Estimate,
    Interval,
    Recommendation,
    arms_of,
    better,
    estimates,
    interval_over,
    recommend,
)
from specdec_cli.bench.result import Arm, BenchResult, Condition, CostSample, Length, PromptId, Sample, kinds_of, plain
from specdec_cli.gain import break_even_acceptance
from specdec_cli.stats import ratio


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Median costs in plain steps: `draft` by K, `verify` by n. `plain_seconds` is the length of a plain step."""

    draft: Mapping[int, float]
    verify: Mapping[int, float]
    plain_seconds: float

    @property
    def draft_step(self) -> float:
        """c: the cost of one draft token, averaged over all K."""
        return sum(self.draft.values()) / sum(self.draft)

    def round(self, k: int) -> float:
        """Cost of a round of `k` drafted tokens."""
        return self.draft[k] + self.verify[k + 1]

    def break_even(self, k: int) -> float | None:
        """The judged acceptance rate at which K = `k` is as fast as plain decoding; None where even 1 is not enough."""
        return break_even_acceptance(self.round(k), k)


def cost_curve(samples: Iterable[CostSample]) -> CostCurve | None:
    """Each sample over the plain step measured next to it: a machine that slows down changes both."""
    draft: dict[int, list[float]] = {}
    verify: dict[int, list[float]] = {}
    plain = []
    for sample in samples:
        draft.setdefault(sample.k, []).append(sample.draft_seconds / sample.plain_seconds)
        verify.setdefault(sample.k + 1, []).append(sample.verify_seconds / sample.plain_seconds)
        plain.append(sample.plain_seconds)
    if not plain:
        return None
    drafts = {k: median(values) for k, values in sorted(draft.items())}
    return CostCurve(drafts, {n: median(values) for n, values in sorted(verify.items())}, median(plain))


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """Sums over the rounds after the first token; `emitted` excludes that token."""

    rounds: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    draft_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return ratio(self.accepted, self.drafted)

    @property
    def judged_rate(self) -> float | None:
        """accepted / (accepted + rejected)."""
        return ratio(self.accepted, self.accepted + self.rejected)

    @property
    def mean_acceptance_length(self) -> float | None:
        """Emitted tokens per target pass."""
        return ratio(self.emitted, self.rounds)

    @property
    def draft_share(self) -> float | None:
        """The draft's part of the time."""
        return ratio(self.draft_seconds, self.seconds)


def sum_rounds(samples: Iterable[Sample]) -> RoundTotals:
    """Sums over the rounds of these answers."""
    found = list(samples)
    return RoundTotals(
        sum(s.target_passes - 1 for s in found),
        sum(s.emitted_tokens - 1 for s in found),
        sum(s.draft_n for s in found),
        sum(s.draft_n_accepted for s in found),
        sum(s.rejected_n for s in found),
        sum(s.draft_seconds for s in found),
        sum(s.draft_seconds + s.verify_seconds for s in found),
    )


def acceptance_by_position(samples: Iterable[Sample]) -> list[float]:
    """[j] = rounds that accepted j + 1 tokens or more / rounds that drafted as many."""
    found = list(samples)
    drafted = zip_longest(*(sample.drafted_at for sample in found), fillvalue=0)
    accepted = zip_longest(*(sample.accepted_at for sample in found), fillvalue=0)
    return [sum(a) / sum(d) for d, a in zip(drafted, accepted, strict=True)]


# What the figure of one K rests on. Every display shows this decision: a handful of answers are no measurement.
Source = Literal["baseline", "measured", "too few"]


def source_of(speedup: Interval) -> Source:
    """`measured` on FEWEST_PROMPTS prompts or more."""
    return "measured" if speedup.prompts >= FEWEST_PROMPTS else "too few"


@dataclass(frozen=True, slots=True)
class Row:
    """One K: `measured` on enough prompts, or on too few. An unknown figure is None.

    `verify_steps` is v(K + 1); `draft_share` is the draft's part of a round's time.
    """

    k: Length
    measured: bool
    speedup: Interval | None
    tokens_per_second: Interval | None
    acceptance_rate: float | None = None
    judged_rate: float | None = None
    mean_acceptance_length: float | None = None
    draft_share: float | None = None
    verify_steps: float | None = None
    ttft_seconds: float | None = None
    peak_memory_bytes: int | None = None

    @property
    def source(self) -> Source:
        if self.k == 0:
            return "baseline"
        return "measured" if self.measured else "too few"


@dataclass(frozen=True, slots=True)
class KindRow:
    """The best K of one kind of text, of those measured on enough of its prompts; 0 where none is faster than plain."""

    kind: str
    k: Length
    speedup: Interval
    acceptance_rate: float | None

    @property
    def worth_it(self) -> bool:
        """Whether drafting is measured to pay for this kind."""
        return self.speedup.low > 1.0

    @property
    def source(self) -> Source:
        return "measured" if self.k else "baseline"

    @property
    def advice(self) -> str:
        """What to do for this kind; empty where the K is simply to be used."""
        if self.k == 0:
            return "decode plainly"
        return "" if self.worth_it else "within noise"


# Speed-ups of one kind that differ by less are a tie; the smaller K is named.
SAME = 0.01


@dataclass(frozen=True)
class Report:
    """Every figure about one condition."""

    result: BenchResult
    condition: Condition

    @property
    def name(self) -> str:
        return f"{self.condition.contender.name}, temperature {self.condition.temperature:g}"

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

    def sum_rounds(self, k: Length, kind: str | None = None) -> RoundTotals:
        """Sums over the rounds at this K, of all answers or of those of one kind."""
        return sum_rounds(sample for sample in self.samples(k) if kind in (None, sample.prompt.kind))

    def of_kind(self, one: Estimate, kind: str) -> Interval | None:
        """The speed-up of an arm on one kind of text; None where it has not met it."""
        seen = {at: value for at, value in one.measured.items() if at.kind == kind}
        return interval_over(seen).exp() if seen else None

    def _arm(self, k: Length) -> Arm:
        return Arm(self.condition.contender, self.condition.temperature, k)

    def _plain(self) -> Row:
        samples, rates = self.samples(0), self._rates(0)
        rate = interval_over(rates).exp() if rates else None
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
        samples, found = self.samples(k), self.sum_rounds(k)
        return Row(
            k,
            one.confirmed,
            one.interval.exp(),
            interval_over(self._rates(k)).exp(),
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
        return KindRow(kind, k, speedup, self.sum_rounds(k, kind).acceptance_rate)


def reports(result: BenchResult) -> list[Report]:
    """One for each condition."""
    return [Report(result, condition) for condition in result.conditions]


def best_reports(found: Sequence[Report]) -> list[Report]:
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


@dataclass(frozen=True, slots=True)
class Change:
    """One K in both results."""

    k: Length
    first: Row
    second: Row

    @property
    def ratio(self) -> Interval | None:
        """The second's tokens a second ÷ the first's, with the interval of two independent benches; None if unknown."""
        one, other = self.first.tokens_per_second, self.second.tokens_per_second
        if one is None or other is None or min(one.prompts, other.prompts) < 2:
            return None
        mean = log(other.mean / one.mean)
        half = (_half(one) ** 2 + _half(other) ** 2) ** 0.5
        return Interval(mean, mean - half, mean + half, min(one.prompts, other.prompts)).exp()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The K that both measured, and every setting and version in which they differ: name -> (first, second)."""

    differences: Mapping[str, tuple[str, str]]
    changes: tuple[tuple[str, tuple[Change, ...]], ...]


def compare(one: BenchResult, other: BenchResult) -> Comparison:
    """Rows of the conditions that both have. Two results of one condition each are compared whatever these are."""
    first, second = reports(one), reports(other)
    if len(first) == len(second) == 1:
        return Comparison(_differences(one, other), ((first[0].name, _changes(first[0], second[0])),))
    by_condition = {report.condition: report for report in second}
    both = [(report, by_condition[report.condition]) for report in first if report.condition in by_condition]
    return Comparison(_differences(one, other), tuple((a.name, _changes(a, b)) for a, b in both))


def _changes(one: Report, other: Report) -> tuple[Change, ...]:
    rows = {row.k: row for row in other.rows}
    return tuple(Change(row.k, row, rows[row.k]) for row in one.rows if row.k in rows)


def _differences(one: BenchResult, other: BenchResult) -> dict[str, tuple[str, str]]:
    first, second = _facts(one), _facts(other)
    names = dict.fromkeys([*first, *second])
    pairs = {name: (str(first.get(name, "–")), str(second.get(name, "–"))) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _facts(result: BenchResult) -> dict[str, Any]:
    settings, environment = result.settings, result.environment
    return {
        "pair": settings.pair,
        "target": settings.target,
        "drafts": " and ".join(contender.name for contender in settings.contenders),
        "temperatures": " ".join(f"{temperature:g}" for temperature in settings.temperatures),
        "rule": settings.rule,
        "prompts": settings.prompts,
        "tokens": settings.max_tokens,
        "ends": settings.ends,
        "chip": environment.chip,
        "system": environment.system,
        "dtype": environment.dtype,
        "power": environment.before.power,
        "low-power mode": environment.before.low_power_mode,
        **environment.versions,
        "date": environment.date,
        "partial": result.partial,
    }


def _half(interval: Interval) -> float:
    """Half the width of the logarithm's interval."""
    return log(interval.high / interval.low) / 2
