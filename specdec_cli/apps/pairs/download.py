"""Progress of a pull. Bytes never decrease, and a stall is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from threading import RLock
from typing import Any, TextIO

from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import TimeRemainingColumn as Remaining
from rich.progress import TransferSpeedColumn as Speed
from rich.text import Text

from specdec_cli.apps.pairs.screen import print_checks
from specdec_cli.core.format import size
from specdec_cli.core.progress import OnStep
from specdec_cli.pairs.verdict import PairVerdict
from specdec_cli.terminal.display import print_line
from specdec_cli.terminal.panel.status import StatusLine, ticking
from specdec_cli.terminal.suspension import cursor_for_the_shell
from specdec_cli.terminal.terminal import can_draw, make_console, safe

STALLED_SECONDS = 10.0
OnProgress = Callable[[str, int, int], None]


class Pulse(ProgressColumn):
    """Shows for how long nothing was reported of a file, from STALLED_SECONDS on.

    Bytes that are not in the file yet count: `reports` of the task grows with each call, its `completed` may not.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[TaskID, tuple[int, float]] = {}

    def render(self, task: Task) -> Text:
        now = self._clock()
        reports = task.fields.get("reports", 0)
        before, since = self._seen.get(task.id, (-1, now))
        if reports != before or task.finished:
            self._seen[task.id] = (reports, now)
            return Text("")
        quiet = now - since
        return Text(f"no data for {quiet:.0f} s", "yellow") if quiet >= STALLED_SECONDS else Text("")


@contextmanager
def pull_display(err: TextIO, total_bytes: int) -> Iterator[OnProgress]:
    """A callback (file, done, total) that draws a bar for each file and one for all, or writes plain lines."""
    if not can_draw(err):
        yield _lines(err)
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=None), DownloadColumn()
    console, drawing = make_console(err, plain=False), RLock()
    bars = Progress(*columns, Speed(), Remaining(), Pulse(), console=console, expand=True, auto_refresh=False)
    # rich's own refreshing may draw between a line's measure of the bars and its writing: it erases a line too many.
    with cursor_for_the_shell(err), bars as progress, ticking(progress.refresh, drawing, 0.1):
        yield _bars(progress, total_bytes, drawing)


def _bars(progress: Progress, total_bytes: int, drawing: AbstractContextManager[Any]) -> OnProgress:
    """Completed files become lines above the bars: a live region taller than the screen would repeat itself."""
    whole = progress.add_task("all files", total=total_bytes)
    tasks: dict[str, TaskID] = {}
    done_by_file: dict[str, int] = {}
    reports = count(1)

    def report(path: str, done_bytes: int, file_bytes: int) -> None:
        with drawing:
            if path not in done_by_file:
                tasks[path] = progress.add_task(safe(path), total=file_bytes)
            done_by_file[path] = max(done_bytes, done_by_file.get(path, 0))
            number = next(reports)
            progress.update(whole, completed=min(sum(done_by_file.values()), total_bytes), reports=number)
            if path in tasks:
                progress.update(tasks[path], completed=done_by_file[path], reports=number)
                if done_by_file[path] >= file_bytes:
                    progress.remove_task(tasks.pop(path))
                    progress.console.print(Text(f"{safe(path)}  {size(file_bytes)}", "dim"))

    return report


def _lines(err: TextIO) -> OnProgress:
    finished: set[str] = set()

    def report(path: str, done_bytes: int, file_bytes: int) -> None:
        if done_bytes >= file_bytes and path not in finished:
            finished.add(path)
            err.write(f"{safe(path)}  {size(file_bytes)}\n")
            err.flush()

    return report


class PullScreen:
    """Everything a pull shows, on `err`."""

    def __init__(self, err: TextIO) -> None:
        self._err = err

    def line(self, text: str) -> None:
        print_line(self._err, text)

    def verdict(self, found: PairVerdict) -> None:
        print_checks(self._err, found)

    @contextmanager
    def checking(self, name: str) -> Iterator[OnStep]:
        with StatusLine(self._err, f"checking {name}") as line:
            yield line.say

    def progress(self, total_bytes: int) -> AbstractContextManager[OnProgress]:
        return pull_display(self._err, total_bytes)
