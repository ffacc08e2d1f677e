"""Draws a server's panel (pure). Law: no row is too wide and no frame too tall; marks differ in shape, too."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from specdec_cli.format import count, duration, size
from specdec_cli.serve.status import DeskStatus, JobStatus, SlotStatus, Totals
from specdec_cli.stats import ratio
from specdec_cli.ui.panel import gauges
from specdec_cli.ui.panel.answer import GUESSED
from specdec_cli.ui.panel.box import boxed, edge
from specdec_cli.ui.panel.rounds import STYLES
from specdec_cli.ui.serve.requests import Table, busy, grouped, rounds_row, summary_line
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.terminal import safe

WIDEST: Final = 120
NARROWEST: Final = 56
LOWEST: Final = 12
"""Below these sizes one line replaces the panel."""
LINES_ABOVE: Final = 3
"""Rows of the screen that stay the log's."""
SHOWN_SLOT_ROWS: Final = 4
SLOT: Final = 36
"""Cells of a conversation."""
_LEGEND = ("✓ accepted", "✗ rejected", "– nothing drafted")


def frame_rows(status: DeskStatus, name: str, url: str, width: int, height: int, least: int = 0) -> list[Text]:
    """The panel for a screen of `width` × `height` cells, `least` rows high if that fits: it should not jump.

    `name` is the server's own pair; where it loaded another one, that is named.
    """
    name = status.pair or name
    if width < NARROWEST or height < LOWEST:
        running = status.running
        return [summary_line(name, running, len(status.waiting), status.totals, width)] if height > 2 else []
    width, room = min(width, WIDEST), height - LINES_ABOVE
    inner = width - 4
    table = Table.of(inner)
    lower = [table.totals(status.totals), _positions(status.totals, inner)]
    slots = _slots(status.slots, inner)
    jobs = _jobs(status, table, room - len(lower) - 5)
    rest = room - len(lower) - len(jobs) - 5
    kept = slots[: max(min(rest, SHOWN_SLOT_ROWS), 0)]
    blank = [Text()] * max(min(least, room) - len(jobs) - len(lower) - len(kept) - 5, 0)
    title = [Text.assemble((safe(name), "bold"), f" · {url}"), Text(safe(name), "bold")]
    return [
        edge("╭╮", title, [Text(_state(status), "dim"), Text()], width),
        *(boxed(row, width) for row in (table.head, *jobs, *blank)),
        edge("├┤", [Text()], [_lost(status.totals)], width),
        *(boxed(row, width) for row in lower),
        edge("├┤", *_kept(status), width),
        *(boxed(row, width) for row in kept),
        edge("╰╯", [Text(safe(status.warning), "yellow")], [_legend(), Text()], width),
    ]


def _jobs(status: DeskStatus, table: Table, room: int) -> list[Text]:
    """Jobs that run, each with its rounds where there is room for all of them, else only the newest; then the queue."""
    running, waiting = status.running, status.waiting
    if not running and not waiting:
        return [Text("no request runs", "dim")]
    if len(running) + len(waiting) > room:  # of many the oldest
        hidden = len(running) + len(waiting) - room + 1
        running, waiting = running[: room - 1], waiting[: max(room - 1 - len(running), 0)]
        queue = [table.waiting(job) for job in waiting] + [Text(f"and {count(hidden, 'request')} more", "dim")]
    else:
        queue = [table.waiting(job) for job in waiting]
    spare = room - len(running) - len(queue)
    rows: list[Text] = []
    for job in running:
        rows.append(table.running(job))
        if job.rounds and (spare >= len(running) or (spare > 0 and job is _newest(running))):
            rows.append(rounds_row(job, table.width))
    return [*rows, *queue]


def _newest(running: tuple[JobStatus, ...]) -> JobStatus:
    return min(running, key=lambda job: job.seconds)


def _positions(totals: Totals, width: int) -> Text:
    """How much of what was drafted at each place was accepted."""
    drafted = totals.drafted_per_position
    accepted = [*totals.accepted_per_position, *[0] * len(drafted)]
    if not drafted:
        return Text("nothing was drafted so far", "dim")
    rates = [accepted[place] / tokens for place, tokens in enumerate(drafted)]
    return gauges.positions({"acceptance_per_position": rates}, width, "accepted", "by place in the draft")


def _lost(totals: Totals) -> Text:
    """How many requests got no whole answer."""
    failed = [f"{grouped(totals.failed)} failed"] if totals.failed else []
    left = [f"{grouped(totals.cancelled)} left early"] if totals.cancelled else []
    return Text(SEPARATOR.join([*failed, *left]), "red" if failed else "dim")


def _state(status: DeskStatus) -> str:
    if status.loaded:
        return busy(len(status.running), len(status.waiting))
    return "loading the models…" if status.running else "models let go until a request comes"


def _kept(status: DeskStatus) -> tuple[list[Text], list[Text]]:
    """How many conversations are kept, and in how much of their memory."""
    held = sum(not slot.prefix_only for slot in status.slots)
    used = f"{size(status.cache_bytes)} of {size(status.budget_bytes)}"
    share = ratio(status.cache_bytes, status.budget_bytes)
    right = [Text.assemble(gauges.bar(share, None, 12), " ", (used, "dim")), Text(used, "dim"), Text()]
    most = count(status.most_slots, "conversation")
    lefts = [Text(words, "dim") for words in (f"{held} of {most} kept", f"{held} of {status.most_slots} kept")]
    return lefts, right


def _slots(slots: tuple[SlotStatus, ...], width: int) -> list[Text]:
    """The conversations, the one used last first, as many beside one another as fit."""
    ordered = sorted(slots, key=lambda slot: (not slot.busy, slot.idle_seconds))
    columns = max(width // SLOT, 1)
    cells = [_slot(slot) for slot in ordered]
    gap = width // columns
    rows = []
    for first in range(0, len(cells), columns):
        row = Text()
        for place, cell in enumerate(cells[first : first + columns]):
            row.append(" " * (place * gap - row.cell_len)).append_text(cell)
        rows.append(row)
    return rows


def _slot(slot: SlotStatus) -> Text:
    """● 1 204 tokens   24 MB  in use."""
    mark, style = ("●", GUESSED) if slot.busy else ("◌", "dim") if slot.prefix_only else ("○", "dim")
    noun = "shared" if slot.prefix_only else "tokens"
    since = "in use" if slot.busy else duration(int(slot.idle_seconds))
    words = f" {grouped(slot.tokens):>7} {noun} {size(slot.nbytes or None):>7} {since:>7}"
    return Text.assemble((mark, style), (words, "" if slot.busy else "dim"))


def _legend() -> Text:
    return Text("   ").join(Text(words, STYLES[words[0]]) for words in _LEGEND)
