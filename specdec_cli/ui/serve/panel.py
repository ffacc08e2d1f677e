"""A server's live panel below its log. Law: drawn by a thread of its own, so a stuck terminal holds up no answer.

A few frames a second at most, and none while nothing changes.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.text import Text

from specdec_cli.serve.status import DeskStatus
from specdec_cli.ui.panel.region import LiveRegion, folds_rows
from specdec_cli.ui.serve.frame import frame_rows
from specdec_cli.ui.serve.requests import ended_line
from specdec_cli.ui.suspension import Suspension, in_background
from specdec_cli.ui.terminal import make_console, safe, terminal_size

REFRESH_SECONDS: Final = 0.25
SETTLING_SECONDS: Final = 5.0
"""A panel that needs fewer rows keeps its height for so long: short requests would make it jump."""
LEAVING_SECONDS: Final = 2.0
"""Longest wait for a frame that is being written, before the terminal is given back."""


class Watched(Protocol):
    """What is watched; from any thread, without waiting."""

    def status(self) -> DeskStatus: ...


class ServerPanel:
    """While it is open, `say` prints lines above the panel of `desk`, the server `name` at `url`."""

    def __init__(
        self,
        err: TextIO,
        name: str,
        url: str,
        desk: Watched,
        size: Callable[[], tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._url, self._desk = name, url, desk
        self._size = size or (lambda: terminal_size(err))
        self._console = make_console(err, plain=False)
        self._region = LiveRegion(self._console, err, self._size, folds_rows(), keeps_erased="TMUX" in os.environ)
        self._lines: deque[str] = deque()
        self._shown: tuple[DeskStatus, tuple[int, int]] | None = None
        self._clock, self._least, self._smaller_at = clock, 0, math.inf
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
        totals = self._desk.status().totals
        with suppress(OSError, ValueError):  # the terminal is gone
            self._region.release(self._above(), [ended_line(totals, self._size()[0])] if totals.jobs else ())

    def _run(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                with self._drawing:
                    self.draw()
                if self._ended.wait(REFRESH_SECONDS):
                    return

    def draw(self) -> None:
        """One frame, if anything changed since the last one."""
        if self._left and not in_background():  # the process is about to stop: the terminal is the shell's
            return
        shown = (steady(self._desk.status()), self._size())
        settled = self._clock() - self._smaller_at >= SETTLING_SECONDS
        if shown == self._shown and not self._lines and not settled:
            return
        self._shown = shown
        self._region.draw(self._above(), self._rows(*shown))

    def _rows(self, status: DeskStatus, size: tuple[int, int]) -> list[Text]:
        rows, now = frame_rows(status, self._name, self._url, *size), self._clock()
        if len(rows) >= self._least or now - self._smaller_at >= SETTLING_SECONDS:
            self._least, self._smaller_at = len(rows), math.inf
            return rows
        self._smaller_at = min(self._smaller_at, now)
        return frame_rows(status, self._name, self._url, *size, self._least)

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
        self._shown, self._left = None, False


def steady(status: DeskStatus) -> DeskStatus:
    """`status` with whole seconds, as they are drawn: what is equal looks the same."""
    return replace(
        status,
        running=tuple(replace(job, seconds=int(job.seconds)) for job in status.running),
        waiting=tuple(replace(job, seconds=int(job.seconds)) for job in status.waiting),
        slots=tuple(replace(slot, idle_seconds=_coarse(slot.idle_seconds)) for slot in status.slots),
    )


def _coarse(seconds: float) -> int:
    """As `duration` writes it: whole seconds for the first 100, then minutes."""
    return int(seconds) if seconds < 100 else int(seconds) // 60 * 60
