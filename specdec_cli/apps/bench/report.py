"""What a result says: rows by K and by kind, and costs of a round (pure).

Every figure follows from the result. Letters: K draft length, n rows of a target pass; costs are in plain steps.
Speed-ups are ratios to mlx-lm's plain decoding of the same prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Literal

from specdec_cli.apps.bench.estimate import Estimate, Recommendation, arms_of, better, estimates, log_rates, recommend
from specdec_cli.apps.bench.result import BenchResult, Condition, Length, RoundCost, Sample, costs, kinds_of
from specdec_cli.core.stats import ratio
from specdec_cli.measure.intervals import FEWEST_PROMPTS, Interval, interval_over
from specdec_cli.measure.prompts import PromptId

# Speed-ups of one kind that differ by less are a tie; the smaller K is named.
SAME = 0.01


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


def cost_curve(found: Iterable[RoundCost]) -> CostCurve | None:
    """None without any cost."""
    by_k: dict[int, list[RoundCost]] = {}
    for cost in sorted(found, key=lambda one: one.k):
        by_k.setdefault(cost.k, []).append(cost)
    if not by_k:
        return None
    draft = {k: median(one.draft for one in mine) for k, mine in by_k.items()}
    verify = {k + 1: median(one.verify for one in mine) for k, mine in by_k.items()}
    return CostCurve(draft, verify, median(one.plain_seconds for mine in by_k.values() for one in mine))


@dataclass(frozen=True, slots=True)
class LengthRow:
    """One K, of all prompts or of one `kind`; `measured` on enough of them, or on too few. An unknown figure is None.

    `judged_rate` is accepted / (accepted + rejected), `verify_steps` is v(K + 1), and `draft_share` the draft's part of
    a round's time.
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
    kind: str = ""

    @property
    def source(self) -> Literal["baseline", "measured", "too few"]:
        """What its figures rest on. Every display shows this: a handful of answers are no measurement."""
        if self.k == 0:
            return "baseline"
        return "measured" if self.measured else "too few"

    @property
    def advice(self) -> str:
        """What to do for this kind; empty where the K is simply to be used."""
        if self.k == 0:
            return "decode plainly"
        return "" if self.speedup and self.speedup.low > 1.0 else "within noise"


def make_row(
    k: Length, speedup: Interval | None, samples: Sequence[Sample], verify: float | None, kind: str
) -> LengthRow:
    """The figures of these answers; tokens a pass exclude the first round."""

    def total(*names: str) -> float:
        return sum(float(getattr(sample, name)) for sample in samples for name in names)

    accepted, answers = total("draft_n_accepted"), len(samples)
    seconds = total("draft_seconds", "verify_seconds")
    rates = log_rates(samples)
    return LengthRow(
        k,
        k == 0 or (speedup is not None and speedup.prompts >= FEWEST_PROMPTS),
        speedup,
        interval_over(rates).exp() if rates else None,
        ratio(accepted, total("draft_n")),
        ratio(accepted, accepted + total("rejected_n")),
        ratio(total("timed_tokens"), total("target_passes") - answers) if k else None,
        ratio(total("draft_seconds"), seconds) if k else None,
        verify,
        median(one.ttft_seconds for one in samples) if samples else None,
        max((one.peak_memory_bytes for one in samples if one.peak_memory_bytes), default=None),
        kind,
    )


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
        return cost_curve(cost for cost in costs(self.result.samples) if cost.condition == self.condition)

    @cached_property
    def estimates(self) -> list[Estimate]:
        """Every arm that was measured, in the order of the settings."""
        return estimates(arms_of(self.condition, self.result.settings.ks), self.result.samples)

    @cached_property
    def recommendation(self) -> Recommendation:
        return recommend(self.condition, self.estimates)

    @cached_property
    def prompts(self) -> list[PromptId]:
        """Those that an arm has answered beside the baseline."""
        return list(dict.fromkeys(at for one in self.estimates for at in one.measured))

    @cached_property
    def rows(self) -> list[LengthRow]:
        """The baseline, then every K that was measured."""
        found = [self._row(0)]
        for one in self.estimates:
            k = one.arm.k
            verify = self.curve.verify.get(k + 1) if self.curve is not None and k != "auto" else None
            found.append(make_row(k, one.interval.exp(), self._samples(k), verify, ""))
        return found

    @cached_property
    def kinds(self) -> list[LengthRow]:
        """The smallest K of each kind that was measured to be as fast as its fastest; 0 where plain decoding is."""
        found = []
        for kind in kinds_of(self.prompts):
            known = []
            for one in self.estimates:
                logs = {at: value for at, value in one.measured.items() if at.kind == kind}
                known += [(one.arm.k, interval_over(logs))] if len(logs) >= FEWEST_PROMPTS else []
            if known:
                best = max(speedup.mean for _, speedup in known)
                k, speedup = next((k, speedup) for k, speedup in known if speedup.mean >= best - SAME)
                row = make_row(k, speedup.exp(), self._samples(k, kind), None, kind)
                found.append(row if best > 0 else self._row(0, kind))
        return found

    def judged_rate(self, kind: str = "") -> float | None:
        """accepted / judged of all answers whose K was a number, or of those of one kind."""
        ks = [one.arm.k for one in self.estimates if one.arm.k != "auto"]
        samples = [sample for k in ks for sample in self._samples(k, kind)]
        return make_row("auto", None, samples, None, kind).judged_rate

    def _row(self, k: int, kind: str = "") -> LengthRow:
        """The baseline's row."""
        samples = self._samples(k, kind)
        prompts = len({sample.prompt for sample in samples})
        return make_row(k, Interval(1.0, 1.0, 1.0, prompts) if samples else None, samples, None, kind)

    def _samples(self, k: Length, kind: str = "") -> list[Sample]:
        arm = self.condition.arm(k)
        return [s for s in self.result.samples if s.arm == arm and kind in ("", s.prompt.kind)]


def reports(result: BenchResult) -> list[Report]:
    """One for each condition."""
    return [Report(result, condition) for condition in result.settings.conditions]


def best_reports(found: Sequence[Report]) -> list[Report]:
    """The report of the best contender at each temperature."""
    chosen = []
    for temperature in dict.fromkeys(one.condition.temperature for one in found):
        mine = [one for one in found if one.condition.temperature == temperature]
        recommendation = better([(one.recommendation, one.estimates) for one in mine])
        chosen.append(next(one for one in mine if one.recommendation is recommendation))
    return chosen
