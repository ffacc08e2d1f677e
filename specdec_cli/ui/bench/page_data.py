"""What the bench's page shows, from a result (pure). Law: every figure is the report's; a missing one stays empty.

Letters: K draft length, n rows of a target pass, v(n) its cost and c that of a draft step, both in plain steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from specdec_cli.bench import sentences
from specdec_cli.bench.costs import CostCurve, acceptance_by_position, totals
from specdec_cli.bench.estimate import Estimate
from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.plan import kinds_of
from specdec_cli.bench.recommend import Recommendation
from specdec_cli.bench.report import Report, reports
from specdec_cli.bench.result import BenchResult, Condition, Length
from specdec_cli.bench.rows import Row, Source, source_of
from specdec_cli.gain import interpolate, round_steps, speedup, tokens_per_round
from specdec_cli.ui.bench.plot import Mark


@dataclass(frozen=True, slots=True)
class CostTable:
    """c and v(1), v(2), …, the pass over n rows at [n - 1]."""

    draft_step: float
    verify: tuple[float, ...]
    plain_seconds: float


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of text: its speed-up by K, and accepted ÷ judged."""

    name: str
    prompts: int
    marks: tuple[Mark | None, ...]
    judged_rate: float | None


@dataclass(frozen=True, slots=True)
class Section:
    """A contender at a temperature. `marks` are in the order of `rows`; `costs` is None where none were measured."""

    condition: Condition
    rows: tuple[Row, ...]
    marks: tuple[Mark | None, ...]
    recommendation: Recommendation
    kinds: tuple[Kind, ...]
    acceptance: tuple[float, ...]
    judged_rate: float | None
    costs: CostTable | None
    conclusion: str
    reasons: tuple[str, ...]
    command: str

    @property
    def name(self) -> str:
        return f"{self.condition.contender.name}, temperature {self.condition.temperature:g}"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(row.k) for row in self.rows)


def sections(result: BenchResult) -> tuple[Section, ...]:
    """One for each condition, in the order asked for."""
    return tuple(map(_section, reports(result)))


def predicted_speedup(accuracy: float, k: int, costs: CostTable) -> float:
    """S(K) = (1 + a + … + a^K) / (K·c + v(K + 1)), as the page's script computes it."""
    return speedup(tokens_per_round(accuracy, k), round_steps(k, costs.draft_step, costs.verify[k]))


def cost_table(curve: CostCurve | None) -> CostTable | None:
    """v(n) for every n up to the largest measured one, linear in between; v(1) is a plain step."""
    if curve is None:
        return None
    known = {1: 1.0, **curve.verify}
    return CostTable(
        curve.draft_step, tuple(interpolate(known, n) for n in range(1, max(known) + 1)), curve.plain_seconds
    )


def _section(report: Report) -> Section:
    advice, rows, samples = report.recommendation, tuple(report.rows), report.at_fixed_k()
    even = sentences.break_even(report)
    return Section(
        report.condition,
        rows,
        tuple(_of_row(row, advice) for row in rows),
        advice,
        tuple(_kind(report, name, rows) for name in kinds_of(report.prompts)),
        tuple(acceptance_by_position(samples)),
        totals(samples).judged_rate,
        cost_table(report.curve),
        sentences.conclusion(report),
        (even,) if even else (),
        sentences.command(report.result, report),
    )


def _of_row(row: Row, advice: Recommendation) -> Mark | None:
    return None if row.speedup is None else _mark(row.speedup, row.source, advice.marks(row.k))


def _kind(report: Report, name: str, rows: Sequence[Row]) -> Kind:
    by_k: dict[Length, Estimate] = {one.arm.k: one for one in report.estimates}
    figures = {k: report.of_kind(one, name) for k, one in by_k.items()}
    marks = tuple(Mark(1.0, 1.0, 1.0) if row.k == 0 else _of_kind(figures.get(row.k)) for row in rows)
    prompts = sum(at.kind == name for at in report.prompts)
    return Kind(name, prompts, marks, totals(report.at_fixed_k(name)).judged_rate)


def _of_kind(figure: Interval | None) -> Mark | None:
    return None if figure is None else _mark(figure, source_of(figure), False)


def _mark(interval: Interval, source: Source, chosen: bool) -> Mark:
    """The mark of an interval; that of too few prompts has infinite bounds and is not drawn."""
    low, high = (interval.low, interval.high) if interval.prompts >= FEWEST_PROMPTS else (-inf, inf)
    return Mark(interval.mean, low, high, source, chosen)
