"""A bench on a terminal: its progress, its report, and two results side by side.

Figures of too few prompts differ without colour, too; names from files are filtered for the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from specdec_cli.bench import sentences
from specdec_cli.bench.estimate import RULE, Interval
from specdec_cli.bench.report import Change, Comparison, KindRow, Report, Row, best_reports
from specdec_cli.bench.result import BenchResult
from specdec_cli.format import percent, size
from specdec_cli.ui.pairs import print_line
from specdec_cli.ui.spelling import spelled
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.suspension import cursor_for_the_shell
from specdec_cli.ui.terminal import MUTED, can_draw, make_console, safe


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """`report(what, share, seconds left)` draws; `say(sentence)` prints a line that stays."""

    report: Callable[[str, float, float], None]
    say: Callable[[str], None]


@contextmanager
def bench_progress(err: TextIO) -> Iterator[BenchProgress]:
    """Progress on `err`."""
    if not can_draw(err):
        yield BenchProgress(_lines(err), lambda sentence: print_line(err, sentence))
        return
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[left]:>6}", markup=False),
        TextColumn("{task.description}", markup=False),
    )
    console = make_console(err, plain=False)
    # Drawn only on a call: a redrawing thread would take time from what is being measured.
    bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
    with cursor_for_the_shell(err), bar as progress:
        task = progress.add_task("", total=1.0, left="")
        room = max(console.width - 36, 8)

        def report(what: str, share: float, seconds_left: float) -> None:
            described = Text(safe(what))
            described.truncate(room, overflow="ellipsis")
            progress.update(task, completed=share, left=clock(seconds_left), description=described.plain, refresh=True)

        yield BenchProgress(report, lambda sentence: console.print(Text(safe(sentence))))


@contextmanager
def silent() -> Iterator[BenchProgress]:
    """The progress under --quiet: none."""
    yield BenchProgress(lambda what, share, seconds_left: None, lambda sentence: None)


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _lines(err: TextIO) -> Callable[[str, float, float], None]:
    """One line for each phase; the first word of `what` names it."""
    said: set[str] = set()

    def report(what: str, share: float, seconds_left: float) -> None:
        phase = what.split(" ", 1)[0]
        if phase not in said:
            said.add(phase)
            err.write(spelled(f"{safe(phase)}… {clock(seconds_left)} left\n", err))
            err.flush()

    return report


# A bar takes the cells that the columns leave, within these bounds.
NARROWEST, WIDEST = 6, 40
# Cells of all other columns, gaps included: under long headings, under short ones, and of the first two figures alone.
TAKEN_WIDE: Final = 94
TAKEN: Final = 69
TAKEN_NARROW: Final = 44
COLOURS: Final = {"use": "bold green", "safest": "bold yellow", "don't": "bold yellow", "unknown": "bold yellow"}


def print_bench(console: Console, result: BenchResult, reports: Sequence[Report]) -> None:
    """A table for each condition, the best K by kind, the recommendation and the next command."""
    console.print(heading(result))
    best = best_reports(reports)
    for report in reports:
        console.print()
        if len(reports) > 1:
            console.print(_title(report))
        console.print(rows_table(report, console.width))
        console.print(Text(legend(report), "dim"))
        if report.kinds:
            console.print()
            console.print(kinds_table(report.kinds, console.width))
        console.print()
        _print_sentences(console, report, chosen=report in best and len(best) < len(reports))
    console.print(_labelled("machine", sentences.surroundings(result), "yellow" if sentences.drifted(result) else ""))
    if result.partial:
        console.print(Text("partial: interrupted, so less was measured than planned", "bold yellow"))
    console.print()
    for report in best:
        console.print(Text(safe(sentences.command(result, report)), "bold"), soft_wrap=True)


def heading(result: BenchResult) -> Text:
    """Who was measured, where, and how."""
    settings, environment = result.settings, result.environment
    ends = "natural ends" if settings.ends == "natural" else "fixed length"
    minutes, seconds = divmod(round(result.seconds), 60)
    took = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    drafts = " or ".join(contender.name for contender in settings.contenders)
    short = settings.target.rstrip("/").rsplit("/", 1)[-1]
    how = [environment.chip, f"{settings.max_tokens} tokens, {ends}", settings.prompts, took]
    first = Text.assemble((safe(settings.pair), "bold"), (safe(f"{SEPARATOR}{short} + {drafts}"), "dim"))
    return first.append("\n" + safe(SEPARATOR.join(how)), "dim not bold")


def rows_table(report: Report, width: int) -> Table:
    """A row for each K."""
    rows, wide = report.rows, width >= 110
    table = Table(box=None, header_style="dim", padding=(0, 2 if wide else 1, 0, 0), pad_edge=False)
    table.add_column(" K", no_wrap=True)
    for name in ("tok/s", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    names = ("accepted", "per pass", "draft", "v(K+1)", "first token", "peak")
    short = ("acc.", "/pass", "draft", "v", "TTFT", "peak")
    shown = len(names) if width >= 76 else 2
    for name in (names if wide else short)[:shown]:
        table.add_column(name, justify="right", no_wrap=True)
    most = max((row.speedup.mean for row in rows if row.speedup), default=1.0)
    taken = TAKEN_WIDE if wide else TAKEN if shown == len(names) else TAKEN_NARROW
    cells = max(NARROWEST, min(WIDEST, width - taken))
    for row in rows:
        table.add_row(*_cells(row, report, most, cells)[: 4 + shown])
    return table


def _cells(row: Row, report: Report, most: float, cells: int) -> list[Text]:
    mark = "★" if report.recommendation.marks(row.k) else " "
    style = "bold" if mark == "★" else "" if row.measured else "dim"
    unsure = sentences.mark(row)
    figures = [
        f"{mark}{row.k}",
        unsure + _spread(row.tokens_per_second, 1),
        unsure + _spread(row.speedup, 2) + "×" if row.k else "1.00×",
    ]
    rest = [
        percent(row.acceptance_rate, unknown=""),
        "" if row.mean_acceptance_length is None else f"{row.mean_acceptance_length:.2f}",
        percent(row.draft_share, unknown=""),
        "" if row.verify_steps is None else f"{row.verify_steps:.2f}",
        "" if row.ttft_seconds is None else _seconds(row.ttft_seconds),
        "" if row.peak_memory_bytes is None else size(row.peak_memory_bytes),
    ]
    drawn = bar(row.speedup.mean if row.speedup else 0.0, most, cells, row.measured)
    return [*(Text(cell, style) for cell in figures), drawn, *(Text(cell, style) for cell in rest)]


def bar(value: float, most: float, cells: int, measured: bool) -> Text:
    """0 … `most` on `cells` cells, broken where of too few prompts; plain decoding's cell is crossed."""
    reached = round(value / most * cells)
    plain = min(cells - 1, round(cells / most) - 1)
    drawn = Text()
    for cell in range(cells):
        filled = cell < reached
        crossed = ("┿" if measured else "┼") if filled else "│"
        colour = "green" if value > 1.0 else "yellow"
        glyph = crossed if cell == plain else ("━" if measured else "╌") if filled else " "
        drawn.append(glyph, colour if filled else MUTED)
    return drawn


def legend(report: Report) -> str:
    """What the marks and the columns mean."""
    parts = [f"± 95 % over prompts ({len(report.prompts)} measured)", *sentences.marks(report)]
    parts.append("v(K+1): a pass of K+1 rows, in plain steps; │ plain decoding")
    return "; ".join(parts)


def kinds_table(kinds: Sequence[KindRow], width: int) -> Table:
    """The best K of each kind of text."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("kind", "best K", "speed-up", "accepted", ""):
        table.add_column(name, justify="left" if name in ("kind", "") else "right", no_wrap=True)
    for row in kinds:
        spread = _spread(row.speedup, 2) + "×" if row.k else "1.00×"
        accepted = percent(row.acceptance_rate, unknown="")
        table.add_row(safe(row.kind), str(row.k), spread, accepted, Text(row.advice, "yellow"))
    return table


def _print_sentences(console: Console, report: Report, chosen: bool) -> None:
    answer = report.recommendation.answer
    better = "the better one; " if chosen else ""
    console.print(_labelled("result", better + sentences.conclusion(report), COLOURS[answer]))
    if even := sentences.break_even(report):
        console.print(_labelled("break-even", even))
    if answer != "unknown":
        console.print(_labelled("rule", RULE, "dim"))


def _labelled(label: str, text: str, style: str = "") -> Table:
    """A dim label, and text that wraps in a column of its own."""
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True, style="dim", min_width=10)
    grid.add_column(overflow="fold")
    grid.add_row(label, Text(safe(text), style))
    return grid


def _title(report: Report) -> Text:
    condition = report.condition
    return Text.assemble(
        (safe(condition.contender.name), "bold"), (f"{SEPARATOR}temperature {condition.temperature:g}", "dim")
    )


def _spread(interval: Interval | None, digits: int) -> str:
    return "–" if interval is None else sentences.spread(interval, digits)


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def print_comparison(out: TextIO, found: Comparison, names: tuple[str, str]) -> None:
    """The differences in settings, then a row for each K."""
    console = make_console(out, plain=False)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("differs", *names):
        table.add_column(safe(heading), overflow="fold")
    for name, (one, other) in found.differences.items():
        table.add_row(Text(name, "dim"), safe(one), safe(other))
    if found.differences:
        console.print(table)
    for title, changes in found.changes:
        console.print()
        console.print(Text(safe(title), "bold"))
        console.print(_rows(changes, names))
    if not found.changes:
        console.print("both have measured no draft at the same temperature")
        return
    console.print(Text("? too few prompts; ± and ranges are 95 % intervals over prompts", "dim"))


def _rows(changes: Sequence[Change], names: tuple[str, str]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("K", no_wrap=True)
    for heading in ("tok/s", "tok/s", "change", "speed-up", "speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    for change in changes:
        both = change.first, change.second
        rates = [_figure(row, row.tokens_per_second, 1) for row in both]
        gains = [_figure(row, row.speedup, 2) + "×" for row in both]
        table.add_row(str(change.k), *rates, _change(change), *gains)
    return table


def _figure(row: Row, value: Interval | None, digits: int) -> str:
    return "–" if value is None else f"{sentences.mark(row)}{value.mean:.{digits}f}"


def _change(change: Change) -> Text:
    """The second's speed against the first's; uncoloured where the interval includes no change."""
    ratio = change.ratio
    if ratio is None:
        return Text("–")
    low, mean, high = (100 * (value - 1) for value in (ratio.low, ratio.mean, ratio.high))
    colour = "" if ratio.contains(1.0) else "green" if mean > 0 else "red"
    return Text(f"{mean:+.1f} % ({low:+.1f} to {high:+.1f})", colour)
