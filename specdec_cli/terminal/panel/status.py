"""What takes long, on one row: what is done, how much of how much, and since when. All waits are shown by this.

On a terminal the row is drawn anew, also while nothing is heard, and is gone at the end. Elsewhere there are two lines,
and none of what ends within PATIENCE_SECONDS: a log is not to grow with the speed of a disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from math import inf
from threading import Event, RLock, Thread
from types import TracebackType
from typing import Any, Final, Self, TextIO

from rich.cells import cell_len
from rich.text import Text

from specdec_cli.core.events import Reading
from specdec_cli.core.format import SEPARATOR, lasted, progress
from specdec_cli.core.progress import Step
from specdec_cli.terminal.panel.box import shortened
from specdec_cli.terminal.panel.region import LiveRegion
from specdec_cli.terminal.suspension import Suspension, answered, may_draw
from specdec_cli.terminal.terminal import can_draw, make_console, print_words, safe, terminal_size

PATIENCE_SECONDS = 3.0
# No data for so long is a stall.
STALLED_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.25
LEAVING_SECONDS: Final = 2.0
"""Longest wait for a frame that is being written, before the terminal is given back."""
LEAST_TITLE: Final = 8
"""Cells of a title that still say something."""
READING: Final = "reading the prompt"
_ONE_ROW: Final = {ord("\t"): " ", ord("\n"): " "}


def status_row(title: str, step: Step, seconds: float, width: int) -> str:
    """`loading qc, 3.1 of 9.6 GB · 12 s`, in at most `width` cells: the note goes first, figures last."""
    title = safe(step.part or title).translate(_ONE_ROW)
    counted = progress(step.done, step.of, step.unit)
    since = f"{SEPARATOR}{lasted(seconds)}" if seconds >= 1 else ""
    figures = f"{', ' if step.unit else ' '}{counted}" if counted else ""
    figures += since or ("" if step.note else "…")
    if (room := width - cell_len(figures)) < min(cell_len(title), LEAST_TITLE):
        return shortened(f"{counted}{since}".removeprefix(SEPARATOR) or title, width)
    row = shortened(title, room) + figures
    for note in filter(None, safe(step.note).translate(_ONE_ROW).split(SEPARATOR)):
        if cell_len(row := f"{row}{SEPARATOR}{note}") > width:
            return row.removesuffix(f"{SEPARATOR}{note}")
    return row


def reading_step(prompt_tokens: int, reading: Reading | None = None) -> Step:
    """How far the prompt is read."""
    if reading is None:
        return Step("", 0, prompt_tokens, "token")
    part = "" if reading.reader == "target" else "the draft reads the prompt"
    return Step(part, reading.read_tokens, reading.prompt_tokens, "token")


class StatusLine:
    """What shows a long step on `err`, for as long as the context, which may be entered again; nothing unless `shown`.

    `patience`, else PATIENCE_SECONDS, is how long counted work takes until it is worth a line where nothing can be
    drawn, as in `plain`. What cannot be counted, such as the start of a library, is worth none, unless there is no
    patience at all. Where it `awaits_data`, the row says for how long none has come.
    """

    def __init__(
        self,
        err: TextIO,
        title: str,
        *,
        shown: bool = True,
        plain: bool = False,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        awaits_data: bool = False,
    ) -> None:
        self._err, self._title, self._shown, self._clock, self._awaits = err, title, shown, clock, awaits_data
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._console, self._draws = make_console(err, plain=plain), shown and not plain and can_draw(err)
        self._region = LiveRegion(self._console, err, lambda: terminal_size(err))
        self._drawing, self._open, self._told, self._since = RLock(), False, False, inf

    def say(self, step: Step) -> None:
        """How far it is now."""
        with self._drawing:
            self._step, self._heard = step, self._clock()
            if step.of:
                self._since = min(self._since, self._heard)
            self.tick()

    def count(self, done: int, of: int, note: str) -> None:
        """`title 12 of 126 · 5 s · note`."""
        self.say(Step("", done, of, "", note))

    def tell(self, sentence: str) -> None:
        """A line that stays, in the midst of it."""
        if not self._shown:
            return
        with self._drawing:
            self._region.release("")
            self._row = ""
            self._print(sentence)

    def tick(self) -> None:
        """Show how long it has been, where that is another word than before; nothing before or after the context."""
        if not self._open:
            return
        step, now = self._step, self._clock()
        if self._awaits and (quiet := now - self._heard) >= STALLED_SECONDS:
            step = replace(step, note=f"no data for {lasted(quiet)}")
        row = status_row(self._title, step, now - self._began, terminal_size(self._err)[0])
        if self._draws and row != self._row:
            self._row = row
            self._region.draw("", [Text(row)])
        elif self._shown and not self._draws and not self._told and self._clock() - self._since >= self._patience:
            self._told = True
            counts = self._step.unit not in ("", "%") and not self._step.part
            whole = progress(0, self._step.of, self._step.unit) if counts else ""
            self._print(f"{self._title}, {whole}…" if whole else f"{self._title}…")

    def __enter__(self) -> Self:
        self._step, self._row, self._told = Step(), "", False
        self._began = self._heard = self._clock()
        self._open = True
        self._since = inf if self._patience else self._began
        with ExitStack() as opened:  # a Ctrl-C amid the opening or the closing gives the terminal back, too
            opened.callback(self._leave)
            self.tick()
            if self._shown:
                opened.enter_context(ticking(self.tick, self._drawing, TICK_SECONDS))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The row goes; a line that began ends, unless an error says so."""
        self._opened.close()
        seconds = self._clock() - self._began
        if self._told and error is None and seconds >= PATIENCE_SECONDS:
            with suppress(OSError, ValueError):  # the terminal is gone
                self._print(f"{self._title}: done in {lasted(seconds)}")

    def _leave(self) -> None:
        self._open = False
        with suppress(OSError, ValueError):  # the terminal is gone
            self._region.release("")

    def _print(self, sentence: str) -> None:
        print_words(self._console, Text(safe(sentence).translate(_ONE_ROW), "dim"))
        self._err.flush()


@contextmanager
def ticking(tick: Callable[[], None], drawing: Any, seconds: float) -> Iterator[None]:
    """In this context a thread calls `tick` every so many `seconds`, holding the lock `drawing`.

    Not while the process is about to stop: the terminal is the shell's. In the background whoever draws knows it. Nor
    once a press of Ctrl-C was answered.
    """
    over, stopped = Event(), Event()

    def run() -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            while not over.wait(seconds):
                with drawing:
                    if not (over.is_set() or answered.is_set() or (may_draw() and stopped.is_set())):
                        tick()

    def leave() -> None:  # in a signal's handler
        stopped.set()
        if drawing.acquire(timeout=LEAVING_SECONDS):  # a frame that is being written ends first
            drawing.release()

    answered.clear()
    thread = Thread(target=run, name="ticks", daemon=True)
    with Suspension(leave, stopped.clear):
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(LEAVING_SECONDS)
