"""The report of a bench on a terminal.

Figures of too few prompts have no interval; names from files are filtered for the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec_cli.apps.bench import sentences
from specdec_cli.apps.bench.estimate import RULE
from specdec_cli.apps.bench.report import LengthRow, Report, best_reports
from specdec_cli.apps.bench.result import BenchResult
from specdec_cli.core.format import SEPARATOR, count, lasted, percent, size
from specdec_cli.measure.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.terminal.summary import bare_table, flow, labelled, print_lines
from specdec_cli.terminal.terminal import MUTED, safe

# The ends of an interval of speeds may be so many times apart; beyond, it says nothing.
NOISIEST = 10
# A bar takes the cells that the columns leave, within these bounds.
NARROWEST, WIDEST = 6, 40
# (least width of the screen, headings of the figures, space between columns, cells of all of them)
BAR: Final = "│ plain"
LAYOUTS: Final = (
    (110, ("tok/s", "speed-up", BAR, "accepted", "per pass", "draft", "pass cost", "first token", "peak"), 2, 97),
    (76, ("tok/s", "speed-up", BAR, "acc.", "/pass", "draft", "cost", "TTFT", "peak"), 1, 69),
    (0, ("tok/s", "speed-up", BAR, "acc.", "/pass"), 1, 44),
)
# What the intervals are, below every table.
LEGEND: Final = f"the 95 % interval over prompts, of at least {FEWEST_PROMPTS}"
# As in `verdict_style`, yellow is not bold.
COLOURS: Final = {"use": "bold green", "safest": "yellow", "don't": "yellow", "unknown": "yellow"}


def print_bench(console: Console, result: BenchResult, reports: Sequence[Report]) -> None:
    """All drafts at their best K, a table for each condition, the best K by kind, the recommendation, the command."""
    print_lines(console, heading(result, console.width), console.width)
    best = best_reports(reports)
    if len(reports) > 1:
        console.print()
        console.print(contenders_table(reports, best))
    for report in reports:
        console.print()
        if len(reports) > 1:
            name, temperature = report.condition.contender.name, report.condition.temperature
            console.print(Text.assemble((safe(name), "bold"), (f"{SEPARATOR}temperature {temperature:g}", "dim")))
        console.print(rows_table(report, console.width))
        console.print(Text(f"±: {LEGEND}; {count(len(report.prompts), 'prompt')} measured", "dim"))
        if report.kinds:
            console.print()
            console.print(kinds_table(report.kinds))
        console.print()
        _print_sentences(console, report, chosen=report in best and len(best) < len(reports))
    console.print(_labelled("machine", sentences.surroundings(result), "yellow" if sentences.drifted(result) else ""))
    if result.partial:
        console.print(Text("partial: interrupted, so less was measured than planned", "yellow"))
    console.print()
    for report in best:
        console.print(Text(safe(sentences.command(report)), "bold"), soft_wrap=True)


def heading(result: BenchResult, width: int) -> list[Text]:
    """Who was measured, where, and how."""
    settings, environment = result.settings, result.environment
    ends = "natural ends" if settings.ends == "natural" else "fixed length"
    drafts = " or ".join(contender.name for contender in settings.contenders)
    short = settings.target.rstrip("/").rsplit("/", 1)[-1]
    how = [environment.chip, f"{settings.max_tokens} tokens, {ends}", settings.prompts, lasted(round(result.seconds))]
    target = "" if short == settings.pair else f"{SEPARATOR}{short}"
    first = Text.assemble((safe(settings.pair), "bold"), (safe(f"{target} + {drafts}"), "dim"))
    return [first, *flow([(safe(words), "dim") for words in how], width)]


def cells(row: LengthRow) -> list[str]:
    """K and the figures of one row."""
    steps, seconds = row.verify_steps, row.ttft_seconds
    return [
        str(row.k),
        sentences.spread(row.tokens_per_second, 1),
        f"{sentences.spread(row.speedup, 2)}×" if row.k else "1.00×",
        percent(row.acceptance_rate, unknown=""),
        "" if row.mean_acceptance_length is None else f"{row.mean_acceptance_length:.2f}",
        percent(row.draft_share, unknown=""),
        "" if steps is None else f"{steps:.2f}",
        "" if seconds is None else f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s",
        "" if row.peak_memory_bytes is None else size(row.peak_memory_bytes),
    ]


def rows_table(report: Report, width: int) -> Table:
    """A row for each K."""
    rows = report.rows
    _, headings, space, taken = next(layout for layout in LAYOUTS if width >= layout[0])
    table = _table(" K", headings, space)
    most = furthest(rows)
    room = max(NARROWEST, min(WIDEST, width - taken))
    for row in rows:
        chosen = report.recommendation.marks(row.k)
        style = "bold" if chosen else "" if row.measured else "dim"
        k, *figures = (Text(cell, style) for cell in cells(row))
        drawn = bar(row.speedup, most, room, row.measured)
        table.add_row(Text("★" if chosen else " ", style) + k, *figures[:2], drawn, *figures[2 : len(headings) - 1])
    return table


def contenders_table(reports: Sequence[Report], best: Sequence[Report]) -> Table:
    """A row for each draft or drafter and temperature at its best K; the better ones are marked."""
    table = _table("  draft", ("temperature", "K", "tok/s", "speed-up", "acc.", "/pass"), 1)
    for report in reports:
        row = next((row for row in report.rows if row.k == report.recommendation.k), report.rows[0])
        marked = report in best and len(best) < len(reports)
        name, temperature = report.condition.contender.name, f"{report.condition.temperature:g}"
        figures = [f"{'★' if marked else ' '} {safe(name)}", temperature, *cells(row)[:5]]
        table.add_row(*(Text(cell, "bold" if marked else "" if row.measured else "dim") for cell in figures))
    return table


def furthest(rows: Sequence[LengthRow]) -> float:
    """Where the bars end: at the highest end of an interval, or at twice the fastest where that is still further."""
    known = [row.speedup for row in rows if row.speedup]
    most = max((one.mean for one in known), default=1.0)
    return max(most, min(2 * most, max((one.high for one in known if has_interval(one)), default=most)))


def has_interval(value: Interval) -> bool:
    """Whether its ends are worth drawing: they say something, and there are enough prompts for them."""
    return value.prompts >= FEWEST_PROMPTS and value.low < value.high <= NOISIEST * value.low


def bar(value: Interval | None, most: float, cells: int, measured: bool) -> Text:
    """0 … `most` on `cells` cells, broken where of too few prompts; plain decoding's cell is crossed.

    The interval is drawn from ├ to ┤, as far as the cells reach.
    """
    if value is None:
        return Text("")
    line, cross = ("━", "┿") if measured else ("╌", "┼")
    reached, low, high = (round(min(end / most, 2) * cells) for end in (value.mean, value.low, value.high))
    plain = min(cells - 1, round(cells / most) - 1)
    drawn = [line if at < reached else " " for at in range(cells)]
    if has_interval(value):
        drawn[reached:high] = "─" * (min(high, cells) - reached)
        for end, mark in ((low, "├"), (high, "┤")):
            drawn[end - 1 : end] = mark if 0 < end <= cells else ""
    drawn[plain] = "│" if drawn[plain] == " " else cross if plain < reached else "┼"
    filled, beyond = "".join(drawn[:reached]), "".join(drawn[reached:])
    colour = "green" if value.mean > 1 else "yellow" if value.mean < 1 else "default"
    return Text.assemble((filled, colour), (beyond, MUTED))


def kinds_table(kinds: Sequence[LengthRow]) -> Table:
    """The best K of each kind of text."""
    table = _table("kind", ("best K", "speed-up", "accepted", ""))
    for row in kinds:
        speedup = f"{sentences.spread(row.speedup, 2)}×" if row.k else "1.00×"
        figures = row.kind, str(row.k), speedup, percent(row.acceptance_rate, unknown="")
        table.add_row(*map(safe, figures), Text(row.advice, "yellow"))
    return table


def _table(first: str, others: Sequence[str], space: int = 2) -> Table:
    """The first column to the left, the others to the right."""
    table = bare_table((first,), space=space)
    for heading in others:
        table.add_column(heading, justify="left" if heading == BAR else "right", no_wrap=True)
    return table


def _print_sentences(console: Console, report: Report, chosen: bool) -> None:
    answer = report.recommendation.answer
    better = "the better one; " if chosen else ""
    console.print(_labelled("result", better + sentences.conclusion(report), COLOURS[answer]))
    if doubt := sentences.busy(report.result):
        console.print(_labelled("but", doubt, "yellow"))
    if even := sentences.break_even(report):
        console.print(_labelled("break-even", even))
    if answer != "unknown":
        console.print(_labelled("rule", RULE, "dim"))


def _labelled(label: str, text: str, style: str = "") -> Table:
    return labelled([(Text(label, "dim"), Text(safe(text), style))])
