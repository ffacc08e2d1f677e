"""The report of `specdec bench --compare`. Law: names from files are filtered for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.table import Table
from rich.text import Text

from specdec_cli.bench import sentences
from specdec_cli.bench.compare import Change, Comparison
from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.rows import Row
from specdec_cli.ui.terminal import make_console, safe


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
