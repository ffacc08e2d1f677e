"""A result as a file, by its extension. Law: JSON and CSV hold every sample."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from specdec_cli.bench import sentences
from specdec_cli.bench.file import to_dict
from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.report import Report, recommended, reports
from specdec_cli.bench.result import BenchResult, Sample
from specdec_cli.bench.rows import KindRow, Row
from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.format import percent, size
from specdec_cli.ui.bench.page import html_page, svg_summary

COLUMNS = ("K", "tok/s", "speed-up", "", "accepted", "per pass", "draft", "v(K+1)", "first token", "peak")


def json_text(result: BenchResult) -> str:
    """Every measurement, and the figures derived from them under `report`."""
    values = to_dict(result) | {"report": [_report(report) for report in reports(result)]}
    return json.dumps(_finite(values), indent=1) + "\n"


def csv_text(result: BenchResult) -> str:
    """One line for each answer."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(_flat(result.samples[0])) if result.samples else ["drafter"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_flat, result.samples))
    return out.getvalue()


def markdown_text(result: BenchResult) -> str:
    """The terminal's tables and sentences, for an issue or a README."""
    found = reports(result)
    settings, environment = result.settings, result.environment
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    lines = [
        f"# specdec bench: {_cell(settings.pair)}",
        "",
        f"{_cell(environment.chip)}, {_cell(environment.system)}, {_cell(versions)}, {_cell(environment.date)}; "
        f"{settings.max_tokens} tokens ({_cell(settings.ends)} ends), {_cell(settings.prompts)}, {result.seconds:.0f} s"
        + (", **partial: interrupted**" if result.partial else ""),
    ]
    for report in found:
        condition = report.condition
        lines += ["", f"## {_cell(condition.contender.name)}, temperature {condition.temperature:g}", ""]
        lines += _table(COLUMNS, [_row(row, report) for row in report.rows])
        if report.kinds:
            lines += ["", *_table(("kind", "best K", "speed-up", "accepted"), map(_kind, report.kinds))]
        said = (sentences.conclusion(report), sentences.break_even(report))
        lines += [f"\n{_cell(sentence[0].upper() + sentence[1:])}." for sentence in said if sentence]
    signs = list(dict.fromkeys(sign for report in found for sign in sentences.marks(report)))
    lines += ["", "; ".join([f"Rule: {sentences.rule()}. ± and ranges are 95 % intervals over prompts", *signs]) + "."]
    lines += ["", f"Machine: {_cell(sentences.surroundings(result))}."]
    lines += ["", "```sh", *(_line(sentences.command(result, report)) for report in recommended(found)), "```", ""]
    return "\n".join(lines)


# Extension -> text of the file. Another format is one function and one line.
WRITERS: dict[str, Callable[[BenchResult], str]] = {
    ".json": json_text,
    ".csv": csv_text,
    ".md": markdown_text,
    ".html": html_page,
    ".svg": svg_summary,
}


def require_writable(paths: Sequence[Path]) -> None:
    """Checks --export before any time is spent.

    Raises: UsageError for an unknown extension or a missing folder.
    """
    for path in paths:
        if path.suffix.lower() not in WRITERS:
            raise UsageError(f"--export {path} ends in {path.suffix or 'nothing'}", f"known: {', '.join(WRITERS)}")
        if not path.parent.is_dir() or path.is_dir():
            problem = "is a folder" if path.is_dir() else f"is in {path.parent}, and there is no such folder"
            raise UsageError(f"--export {path} {problem}", "name a file in a folder that exists")


def export(result: BenchResult, path: Path) -> None:
    """Raises: SpecdecError if the file cannot be written."""
    try:
        path.write_text(WRITERS[path.suffix.lower()](result), encoding="utf-8")
    except OSError as error:
        raise SpecdecError(f"{path} cannot be written: {error.strerror}", "check the folder's permissions") from error


def _report(report: Report) -> dict[str, Any]:
    curve = report.curve
    return {
        "condition": asdict(report.condition),
        "verdict": asdict(report.recommendation)
        | {"chosen": report.recommendation.chosen, "told": sentences.conclusion(report)},
        "rows": [asdict(row) | {"source": row.source} for row in report.rows],
        "kinds": [asdict(row) | {"source": row.source} for row in report.kinds],
        "draft_steps": curve and dict(curve.draft),
        "verify_steps": curve and dict(curve.verify),
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: an infinite bound becomes null."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _flat(sample: Sample) -> dict[str, Any]:
    values = asdict(sample)
    arm, prompt = values.pop("arm"), values.pop("prompt")
    rate = sample.tokens_per_second if sample.decode_seconds else None
    flat = {**arm.pop("contender"), **arm, **prompt, **values, "tokens_per_second": rate}
    return {name: _guarded(value) for name, value in flat.items()}


def _table(header: Sequence[str], rows: Any) -> list[str]:
    lines = [list(header), ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _row(row: Row, report: Report) -> list[str]:
    chosen = report.recommendation.marks(row.k)
    mark = sentences.mark(row)
    return [
        f"**{row.k}**" if chosen else str(row.k),
        _spread(row.tokens_per_second, 1, mark),
        _spread(row.speedup, 2, mark) if row.k else "1.00",
        row.source,
        percent(row.acceptance_rate, unknown=""),
        "" if row.mean_acceptance_length is None else f"{row.mean_acceptance_length:.2f}",
        percent(row.draft_share, unknown=""),
        "" if row.verify_steps is None else f"{row.verify_steps:.2f}",
        "" if row.ttft_seconds is None else f"{1000 * row.ttft_seconds:.0f} ms",
        "" if row.peak_memory_bytes is None else size(row.peak_memory_bytes),
    ]


def _kind(row: KindRow) -> list[str]:
    advice = f", {row.advice}" if row.advice else ""
    spread = _spread(row.speedup, 2, "") if row.k else "1.00"
    return [_cell(row.kind), f"{row.k}{advice}", spread, percent(row.acceptance_rate, unknown="")]


# Markdown's own characters, and those of the HTML that it lets through.
MARKED = re.compile(r"([\\`*\[\]|])")


def _cell(text: str) -> str:
    """Foreign text as it is, on one line: neither a table's bar nor markup nor HTML takes effect."""
    plain = " ".join(text.split())
    return MARKED.sub(r"\\\1", plain).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _line(command: str) -> str:
    """A command in its block of code, which a line of backticks alone would end."""
    return command.replace("\n", " ").replace("\r", " ")


# A spreadsheet takes a text that begins so for a formula, and runs it (OWASP, CSV injection).
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _guarded(value: Any) -> Any:
    """A text that a spreadsheet leaves a text; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _spread(interval: Interval | None, digits: int, mark: str) -> str:
    return "" if interval is None else mark + sentences.spread(interval, digits)
