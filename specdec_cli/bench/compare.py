"""Two results side by side (pure). Law: every other difference is shown before the speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.report import Report, reports
from specdec_cli.bench.result import BenchResult, Condition, Length
from specdec_cli.bench.rows import Row


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
        return Comparison(_differences(one, other), ((_named(first[0].condition), _changes(first[0], second[0])),))
    by_condition = {report.condition: report for report in second}
    both = [(report, by_condition[report.condition]) for report in first if report.condition in by_condition]
    return Comparison(_differences(one, other), tuple((_named(a.condition), _changes(a, b)) for a, b in both))


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


def _named(condition: Condition) -> str:
    return f"{condition.contender.name}, temperature {condition.temperature:g}"


def _half(interval: Interval) -> float:
    """Half the width of the logarithm's interval."""
    return log(interval.high / interval.low) / 2
