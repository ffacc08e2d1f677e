"""A server's live panel below its log, drawn by a thread of its own, so a stuck terminal holds up no answer.

A few frames a second at most, and none while nothing changes. No row is too wide and no frame too tall; figures and
marks only, no word of a prompt or an answer; marks differ in shape, too.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.text import Text

from specdec_cli.format import count, duration, percent, size, speed
from specdec_cli.serve.status import ConversationStatus, JobStatus, SchedulerStatus, Totals
from specdec_cli.stats import ratio
from specdec_cli.ui.panel import gauges
from specdec_cli.ui.panel.answer import GUESSED
from specdec_cli.ui.panel.region import LiveRegion
from specdec_cli.ui.panel.rounds import STYLES, boxed, edge, shortened, spread, strip
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.suspension import Suspension, may_draw
from specdec_cli.ui.terminal import make_console, safe, terminal_size

REFRESH_SECONDS: Final = 0.25
SETTLING_SECONDS: Final = 5.0
"""A panel that needs fewer rows keeps its height for so long: short requests would make it jump."""
LEAVING_SECONDS: Final = 2.0
"""Longest wait for a frame that is being written, before the terminal is given back."""
WIDEST, NARROWEST, LOWEST = 120, 56, 12
"""Cells of a row, and the sizes below which one line replaces the panel."""
LINES_ABOVE, CONVERSATION_ROWS, CONVERSATION, NAME, WIDEST_COLUMN = 3, 4, 36, 18, 14
"""Rows of the screen that stay the log's, rows of conversations; cells of one, of a request's name and of a column."""
# Title and least cells of a column; those marked are left out where there is no room for them.
COLUMNS = (("read", 8), ("reused", 8), ("tokens", 8), ("tok/s", 7), ("accepted", 10), ("time", 8))
DISPENSABLE = ("reused", "time")


class Watched(Protocol):
    """What is watched; from any thread, without waiting."""

    def status(self) -> SchedulerStatus: ...


class ServerPanel:
    """While it is open, `say` prints lines above the panel of `watched`, the server `name` at `url`."""

    def __init__(
        self,
        err: TextIO,
        name: str,
        url: str,
        watched: Watched,
        size: Callable[[], tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._url, self._watched = name, url, watched
        self._size = size or (lambda: terminal_size(err))
        self._console = make_console(err, plain=False)
        self._region = LiveRegion(self._console, err, self._size)
        self._lines: deque[str] = deque()
        self._drawn: tuple[list[Text], tuple[int, int]] | None = None
        self._clock, self._least, self._needed_at = clock, 0, 0.0
        self._drawing, self._ended, self._left = threading.Lock(), threading.Event(), False
        self._suspension = Suspension(self._leave, self._resume)
        self._thread = threading.Thread(target=self._run, name="panel", daemon=True)

    def say(self, line: str) -> None:
        """Print a line above the panel, with the next frame; from any thread."""
        self._lines.append(line)

    def __enter__(self) -> Self:
        self._suspension.hold()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The panel goes; its sums and the terminal's cursor stay."""
        self._ended.set()
        self._thread.join(LEAVING_SECONDS)
        self._suspension.release()
        totals = self._watched.status().totals
        with suppress(OSError, ValueError):  # the terminal is gone
            self._region.release(self._above(), [_ended_line(totals, self._size()[0])] if totals.jobs else ())

    def _run(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                with self._drawing:
                    self.draw()
                if self._ended.wait(REFRESH_SECONDS):
                    return

    def draw(self) -> None:
        """One frame, if anything changed since the last one."""
        if may_draw() and self._left:  # the process is about to stop: the terminal is the shell's
            return
        status, size, now = self._watched.status(), self._size(), self._clock()
        rows = frame_rows(status, self._name, self._url, *size)
        if len(rows) >= self._least or now - self._needed_at >= SETTLING_SECONDS:
            self._least, self._needed_at = len(rows), now
        else:
            rows = frame_rows(status, self._name, self._url, *size, self._least)
        if (rows, size) != self._drawn or self._lines:
            self._drawn = rows, size
            self._region.draw(self._above(), rows)

    def _above(self) -> str:
        """The lines said since, each with its newline, folded at the width of the terminal."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        width = self._size()[0]
        with self._console.capture() as capture:
            for line in lines:
                for row in Text(safe(line), "dim").wrap(self._console, width):
                    self._console.print(row, soft_wrap=True)
        return capture.get()

    def _leave(self) -> None:
        """In a signal's handler, before the process stops."""
        self._left = True  # at once: no frame begins any more
        drawn = self._drawing.acquire(timeout=LEAVING_SECONDS)
        self._region.leave()
        if drawn:
            self._drawing.release()

    def _resume(self) -> None:
        self._region.forget()
        self._drawn, self._left = None, False


def frame_rows(status: SchedulerStatus, name: str, url: str, width: int, height: int, least: int = 0) -> list[Text]:
    """The panel for a screen of `width` × `height` cells, `least` rows high if that fits: it should not jump.

    `name` is the server's own pair; where it loaded another one, that is named.
    """
    name = safe(status.pair or name)
    if width < NARROWEST or height < LOWEST:
        return [_summary_line(name, status, width)] if height > 2 else []
    width, room = min(width, WIDEST), height - LINES_ABOVE
    inner, columns = width - 4, _columns(width - 4)
    sums = [_totals(status.totals, inner, columns), _positions(status.totals, inner)]
    jobs = _jobs(status, inner, columns, room - len(sums) - 5)
    spare = room - len(sums) - len(jobs) - 5
    kept = _conversations(status.conversations, inner)[: max(min(spare, CONVERSATION_ROWS), 0)]
    blank = [Text()] * max(min(least, room) - len(jobs) - len(sums) - len(kept) - 5, 0)
    title = [Text.assemble((name, "bold"), f" · {url}"), Text(name, "bold")]
    head = Text(_row("request", {title: title for title, _ in columns}, inner, columns), "dim")
    legend = ("✓ accepted", "✗ rejected", "– nothing drafted")
    legends = [Text("   ").join(Text(words, STYLES[words[0]]) for words in legend), Text()]
    return [
        edge("╭╮", title, [Text(_state(status), "dim"), Text()], width),
        *(boxed(row, width) for row in (head, *jobs, *blank)),
        edge("├┤", [Text()], [_lost(status.totals)], width),
        *(boxed(row, width) for row in sums),
        edge("├┤", *_kept(status), width),
        *(boxed(row, width) for row in kept),
        edge("╰╯", [Text(safe(status.warning), "yellow")], legends, width),
    ]


Columns = tuple[tuple[str, int], ...]


def _columns(width: int) -> Columns:
    """As many columns as fit beside a name, as wide as that allows."""
    columns = list(COLUMNS)
    for title in DISPENSABLE:
        if sum(cells for _, cells in columns) + NAME > width:
            columns = [column for column in columns if column[0] != title]
    spare = max(width - NAME - sum(cells for _, cells in columns), 0) // (len(columns) + 1)
    return tuple((title, min(cells + spare, WIDEST_COLUMN)) for title, cells in columns)


def _row(name: str, figures: dict[str, str], width: int, columns: Columns) -> str:
    cells = "".join(f"{figures.get(title, ''):>{cells}}" for title, cells in columns)
    return f"{name:<{width - len(cells)}}{cells}"


def _jobs(status: SchedulerStatus, width: int, columns: Columns, room: int) -> list[Text]:
    """Jobs that run, each with its rounds where there is room for all of them, else only the newest; then the queue."""
    running, waiting, more = status.running, status.waiting, []
    if not running and not waiting:
        return [Text("no request runs", "dim")]
    if len(running) + len(waiting) > room:  # of many the oldest
        more = [Text(f"and {count(len(running) + len(waiting) - room + 1, 'request')} more", "dim")]
        running, waiting = running[: room - 1], waiting[: max(room - 1 - len(running), 0)]
    spare = room - len(running) - len(waiting) - len(more)
    newest = min(running, key=lambda job: job.seconds, default=None)
    rows: list[Text] = []
    for job in running:
        rows.append(_running(job, width, columns))
        if job.rounds and (spare >= len(running) or (spare > 0 and job is newest)):
            mean = gauges.average({"mean_acceptance_length": ratio(job.generated_tokens, job.passes)}, width)
            rows.append(strip(job.rounds, None, mean, width))
    return [*rows, *(_waiting(job, width) for job in waiting), *more]


def _running(job: JobStatus, width: int, columns: Columns) -> Text:
    """A job's figures, or how far it has read: ━━━━━━╸───── 4 096 of 12 000."""
    name = shortened(safe(job.endpoint), NAME - 1)
    if job.passes:
        figures = _figures(job.read_tokens, job.cached_tokens, job.generated_tokens, job.tokens_per_second)
        figures |= {"accepted": percent(job.acceptance_rate), "time": duration(int(job.seconds))}
        row = Text(_row(name, figures, width, columns))
        row.stylize("bold", 0, NAME)
        return row
    title = (f"{name:<{NAME}}", "bold")
    if job.reading is None:
        return Text.assemble(title, (f"reads {count(job.prompt_tokens, 'token')}…", "dim"))
    read, tokens = job.reading.read_tokens, job.reading.prompt_tokens
    who = "draft reads" if job.reading.reader == "draft" else "reads"
    words = f"{who} {_grouped(read)} of {_grouped(tokens)}"
    room = width - NAME - len(words) - 2
    if room < 4:
        return Text.assemble(title, (shortened(words, width - NAME), "dim"))
    return Text.assemble(title, gauges.bar(ratio(read, tokens), None, room), "  ", (words, "dim"))


def _waiting(job: JobStatus, width: int) -> Text:
    """A job that waits, and its place."""
    name = shortened(f"{job.position + 1:>2}. {safe(job.endpoint)}", NAME + 2)
    said = f"waits {duration(int(job.seconds))}, {count(job.prompt_tokens, 'token')}"
    return Text(shortened(f"{name:<{NAME + 4}}{said}", width), "dim")


def _figures(read: int, reused: int, tokens: int, pace: float | None) -> dict[str, str]:
    said = {"read": _grouped(read), "reused": _grouped(reused), "tokens": _grouped(tokens)}
    return said | {"tok/s": speed(pace).removesuffix(" tok/s")}


def _totals(totals: Totals, width: int, columns: Columns) -> Text:
    """All jobs so far."""
    pace = ratio(totals.timed_tokens, totals.timed_seconds)
    figures = _figures(totals.read_tokens, totals.cached_tokens, totals.generated_tokens, pace)
    figures["accepted"] = percent(totals.acceptance_rate)
    return Text(_row(f"all {_grouped(totals.jobs)}", figures, width, columns))


def _positions(totals: Totals, width: int) -> Text:
    """How much of what was drafted at each place was accepted."""
    drafted = totals.drafted_per_position
    if not drafted:
        return Text("nothing was drafted so far", "dim")
    accepted = [*totals.accepted_per_position, *[0] * len(drafted)]
    rates = [accepted[place] / tokens for place, tokens in enumerate(drafted)]
    return gauges.positions({"acceptance_per_position": rates}, width, "accepted", "by place in the draft")


def _lost(totals: Totals) -> Text:
    """How many requests got no whole answer."""
    failed = [f"{_grouped(totals.failed)} failed"] if totals.failed else []
    left = [f"{_grouped(totals.cancelled)} left early"] if totals.cancelled else []
    return Text(SEPARATOR.join([*failed, *left]), "red" if failed else "dim")


def _state(status: SchedulerStatus) -> str:
    running, waiting = len(status.running), len(status.waiting)
    if not status.loaded:
        return "loading the models…" if running else "models let go until a request comes"
    waits = f", {waiting} {'waits' if waiting == 1 else 'wait'}" if waiting else ""
    return f"{running} {'runs' if running == 1 else 'run'}{waits}" if running or waiting else "idle"


def _kept(status: SchedulerStatus) -> tuple[list[Text], list[Text]]:
    """How many conversations are kept, and in how much of their memory."""
    held = sum(not one.prefix_only for one in status.conversations)
    used = f"{size(status.cache_bytes)} of {size(status.budget_bytes)}"
    share = ratio(status.cache_bytes, status.budget_bytes)
    right = [Text.assemble(gauges.bar(share, None, 12), " ", (used, "dim")), Text(used, "dim"), Text()]
    most = (count(status.most_conversations, "conversation"), str(status.most_conversations))
    return [Text(f"{held} of {words} kept", "dim") for words in most], right


def _conversations(conversations: Sequence[ConversationStatus], width: int) -> list[Text]:
    """The conversations, the one used last first, as many beside one another as fit: ● 1 204 tokens  24 MB  in use."""
    columns = max(width // CONVERSATION, 1)
    rows: list[Text] = []
    for place, one in enumerate(sorted(conversations, key=lambda one: (not one.busy, one.idle_seconds))):
        if place % columns == 0:
            rows.append(Text())
        mark, style = ("●", GUESSED) if one.busy else ("◌", "dim") if one.prefix_only else ("○", "dim")
        noun = "shared" if one.prefix_only else "tokens"
        since = "in use" if one.busy else duration(int(one.idle_seconds))
        words = f" {_grouped(one.tokens):>7} {noun} {size(one.nbytes or None):>7} {since:>7}"
        rows[-1].append(" " * (place % columns * (width // columns) - rows[-1].cell_len))
        rows[-1].append(mark, style).append(words, "" if one.busy else "dim")
    return rows


def _summary_line(name: str, status: SchedulerStatus, width: int) -> Text:
    """The whole panel in one line, its most important words first."""
    paces, totals = [job.tokens_per_second for job in status.running if job.tokens_per_second], status.totals
    said = [
        _state(status) if status.running or status.waiting else "idle",
        *([speed(sum(paces))] if paces else []),
        *([f"{percent(totals.acceptance_rate)} accepted"] if totals.draft_tokens else []),
        f"{count(totals.jobs, 'request')} done",
    ]
    line = Text.assemble((name, "bold"), *((SEPARATOR + words, "") for words in said))
    return spread(line, Text(), width) if line.cell_len > width else line


def _ended_line(totals: Totals, width: int) -> Text:
    """What a server that has ended did."""
    accepted = f", {percent(totals.acceptance_rate)} of drafts accepted" if totals.draft_tokens else ""
    words = f"{count(totals.jobs, 'request')}, {count(totals.generated_tokens, 'token')} generated{accepted}"
    return Text(shortened(words, width))


def _grouped(number: int) -> str:
    """12345 -> "12 345"."""
    return f"{number:,}".replace(",", " ")
