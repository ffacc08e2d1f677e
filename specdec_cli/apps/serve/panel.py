"""A server's live panel below its log, drawn by a thread of its own, so a stuck terminal holds up no answer.

A few frames a second at most, and none while nothing changes. No row is too wide and no frame too tall; figures and
marks only, no word of a prompt or an answer; marks differ in shape, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import groupby
from threading import RLock
from types import TracebackType
from typing import Final, Self, TextIO

from rich.text import Text

from specdec_cli.apps.serve.job import JobHandle, SchedulerStatus
from specdec_cli.core.format import count, duration, percent, size, speed
from specdec_cli.terminal.panel.answer import GUESSED
from specdec_cli.terminal.panel.box import boxed, edge, shortened, spread
from specdec_cli.terminal.panel.frame import by_position
from specdec_cli.terminal.panel.region import LiveRegion
from specdec_cli.terminal.panel.rounds import STYLES
from specdec_cli.terminal.panel.status import ticking
from specdec_cli.terminal.summary import SEPARATOR
from specdec_cli.terminal.suspension import Suspension
from specdec_cli.terminal.terminal import MUTED, make_console, safe, terminal_size

REFRESH_SECONDS: Final = 0.25
WIDEST, NARROWEST, LOWEST = 120, 66, 12
"""Cells of a row, and the sizes below which one line replaces the panel."""
LINES_ABOVE, FRAME_ROWS, NAME = 3, 7, 18
"""Rows of the screen that stay the log's, rows that are always there; cells of a request's name."""
ROUNDS, MOST_TICKS = "rounds   ", 5
COLUMNS = (("read", 7), ("reused", 8), ("tokens", 8), ("tok/s", 7), ("accepted", 10))


class ServerPanel:
    """While it is open, `say` prints lines above the panel of the server `name` at `url`, as `status` has it."""

    def __init__(
        self,
        err: TextIO,
        name: str,
        url: str,
        status: Callable[[], SchedulerStatus],
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._name, self._url, self._status = name, url, status
        self._size = size or (lambda: terminal_size(err))
        self._console = make_console(err, plain=False)
        self._region = LiveRegion(self._console, err, self._size)
        self._lines: deque[str] = deque()
        self._drawn: tuple[list[Text], tuple[int, int]] = [], (0, 0)
        self._suspension, self._ticks = Suspension(self._region.leave, self._resume), ExitStack()

    def say(self, line: str) -> None:
        """Print a line above the panel, with the next frame; from any thread."""
        self._lines.append(line)

    def __enter__(self) -> Self:
        self._suspension.hold()
        self._ticks.enter_context(ticking(self.draw, RLock(), REFRESH_SECONDS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The panel goes; its sums and the terminal's cursor stay."""
        self._ticks.close()
        self._suspension.release()
        with suppress(OSError, ValueError):  # the terminal is gone
            self._region.release(self._above(), ended_rows(self._status(), self._size()[0]))

    def draw(self) -> None:
        """One frame, if anything changed since the last one; on one screen it never gets lower, for it would jump."""
        size, (drawn, before) = self._size(), self._drawn
        rows = frame_rows(self._status(), self._name, self._url, *size, len(drawn) if size == before else 0)
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

    def _resume(self) -> None:
        self._region.forget()
        self._drawn = [], (0, 0)


def frame_rows(status: SchedulerStatus, name: str, url: str, width: int, height: int, least: int = 0) -> list[Text]:
    """The panel for a screen of `width` × `height` cells, `least` rows high if that fits.

    `name` is the server's own pair; where it loaded another one, that is named.
    """
    name, totals, rounds = safe(status.pair or name), status.totals, status.totals.rounds
    rate = percent(rounds.draft_acceptance_rate)
    if width < NARROWEST or height < LOWEST:
        words = [_state(status), f"{rate} accepted", f"{count(status.jobs, 'request')} done"]
        return [Text(shortened(SEPARATOR.join([name, *words]), width))] if height > 2 else []
    width, room = min(width, WIDEST), height - LINES_ABOVE - FRAME_ROWS
    jobs = _jobs(status, width - 4, room)
    jobs += [Text()] * (min(least - FRAME_ROWS, room) - len(jobs))
    lost = [f"{_grouped(many)} {what}" for many, what in ((status.failed, "failed"), (status.cancelled, "left early"))]
    sums = _row(
        f"all {_grouped(status.jobs)}",
        [totals.prompt_tokens - totals.cached_tokens, totals.cached_tokens, rounds.emitted_tokens],
        [speed(totals.tokens_per_second), rate],
        width - 4,
    )
    used = f"{size(status.cache_bytes)} of {size(status.budget_bytes)}"
    kept = f"{status.conversations} of {count(status.most_conversations, 'conversation')} kept"
    legend = [Text(words, STYLES[words[0]]) for words in ("✓ accepted", "✗ rejected", "– nothing drafted")]
    head = "".join(f"{title:>{cells}}" for title, cells in COLUMNS)
    titles = [Text.assemble((name, "bold"), f" · {url}"), Text(name, "bold")]
    return [
        edge("╭╮", titles, [Text(_state(status), "dim")], width),
        boxed(Text(f"{'request':<{width - 4 - len(head)}}{head}", "dim"), width),
        *(boxed(row, width) for row in jobs),
        edge("├┤", [Text()], [Text(SEPARATOR.join(words for words in lost if words[0] != "0"), "dim")], width),
        boxed(sums, width),
        boxed(by_position(rounds.acceptance_per_position, width - 4, "accepted "), width),
        edge("├┤", [Text(kept, "dim")], [Text(used, "dim"), Text()], width),
        edge("╰╯", [Text(safe(status.warning), "yellow")], [Text("   ").join(legend), Text()], width),
    ]


def _jobs(status: SchedulerStatus, width: int, room: int) -> list[Text]:
    """Jobs that run, each with its rounds where there is room for that; of many the oldest, and how many more wait."""
    running, waiting = status.running[:room], len(status.waiting)
    if not running:
        return [Text("no requests running", "dim")]
    rows: list[Text] = []
    for job in running:
        rows.append(_running(job, status.now, width))
        if job.rounds and 2 * len(running) <= room:
            rows.append(_rounds(job, width))
    if waiting and len(rows) < room:
        rows.append(Text(f"and {count(waiting, 'request')} more in the queue", "dim"))
    return rows


def _running(job: JobHandle, now: float, width: int) -> Text:
    """A job's figures, or how far it has read: ━━━━━━╸───── 4 096 of 12 000."""
    name, prompt = f"{shortened(safe(job.job.endpoint), NAME - 1):<{NAME}}", len(job.job.prompt)
    if job.rounds:
        tokens = [job.read_tokens, job.cached_tokens, job.stats.emitted_tokens]
        row = _row(name, tokens, [speed(job.tokens_per_second(now)), percent(job.stats.draft_acceptance_rate)], width)
        row.stylize("bold", 0, NAME)
        return row
    if job.reading is None:
        since = duration(int(now - job.came_at))
        return Text.assemble((name, "bold"), (f"reads {count(prompt, 'token')}, {since}", "dim"))
    read, tokens_in = job.reading.read_tokens, job.reading.prompt_tokens
    words = f"{'draft ' * (job.reading.reader == 'draft')}reads {_grouped(read)} of {_grouped(tokens_in)}"
    room = width - NAME - len(words) - 2
    done = round(2 * room * read / tokens_in)
    bar = Text("━" * (done // 2) + "╸" * (done % 2), GUESSED).append("─" * (room - (done + 1) // 2), MUTED)
    return Text.assemble((name, "bold"), bar, "  ", (words, "dim"))


def _rounds(job: JobHandle, width: int) -> Text:
    """rounds ✓✓✗ 3 – 1 ×5: what became of the newest drafts, how many tokens each round gave, and the mean of all.

    Rounds without a draft that follow one another are one entry.
    """
    mean = Text.assemble(("tokens per pass ", "dim"), (f"{job.stats.mean_acceptance_length or 0:.1f}", "bold"))
    row, room = Text(), width - len(ROUNDS) - mean.cell_len - 2
    for _, run in reversed([(_, list(run)) for _, run in groupby(job.rounds, lambda done: done.round.draft and done)]):
        judged = run[-1].round
        ticks = "✓" * min(judged.accepted, MOST_TICKS) + "…" * (judged.accepted > MOST_TICKS)
        marks = ticks + "✗" * (judged.rejected is not None) if judged.draft else "–"
        entry = Text(f"{marks} {len(judged.emitted)}{f' ×{len(run)}' * (len(run) > 1)}")
        if row.cell_len + entry.cell_len + 3 > room:
            row.pad_left(room - row.cell_len)  # it moves: its newest end stays where it is
            break
        row = Text("   ").join([entry, row]) if row else entry
    for mark, style in STYLES.items():
        row.highlight_regex(mark, style)
    return spread(Text.assemble((ROUNDS, "dim"), row), mean, width)


def _row(name: str, tokens: list[int], rates: list[str], width: int) -> Text:
    cells = [*map(_grouped, tokens), rates[0].removesuffix(" tok/s"), rates[1]]
    row = "".join(f"{cell:>{wide}}" for cell, (_, wide) in zip(cells, COLUMNS, strict=True))
    return Text(f"{name:<{width - len(row)}}{row}")


def _state(status: SchedulerStatus) -> str:
    running, waiting = len(status.running), len(status.waiting)
    if not status.loaded:
        return "loading the models…" if running else "models unloaded until the next request"
    if not running and not waiting:
        return "idle"
    shared = f", {status.sharing} in one pass" if status.sharing > 1 else ""
    return f"{running} running{shared}" + (f", {waiting} waiting" if waiting else "")


def ended_rows(status: SchedulerStatus, width: int) -> list[Text]:
    """What a server that has ended did; nothing where nobody asked."""
    rounds = status.totals.rounds
    accepted = f", {percent(rounds.draft_acceptance_rate)} of drafts accepted" if rounds.draft_n else ""
    words = f"{count(status.jobs, 'request')}, {count(rounds.emitted_tokens, 'token')} generated{accepted}"
    return [Text(shortened(words, width))] if status.jobs else []


def _grouped(number: int) -> str:
    """12345 -> "12 345"."""
    return f"{number:,}".replace(",", " ")
