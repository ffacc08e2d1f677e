"""Ctrl-Z and `fg` around something drawn on a terminal. Law: the shell gets a clean terminal with a visible cursor.

Ctrl-Z sends SIGTSTP. A handler of ours cleans up, stops the process as the default does, and goes on after SIGCONT.
Nothing is written through Python's streams here: a handler may run amid a write of theirs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO


class Suspension:
    """While held, `leave()` is called before the process stops, and `resume()` after it went on, however it stopped.

    Of two, the one held later leaves first and resumes last.
    """

    def __init__(self, leave: Callable[[], None], resume: Callable[[], None]) -> None:
        self._leave, self._resume = leave, resume
        self._before: dict[signal.Signals, Any] = {}

    def hold(self) -> None:
        """Nothing outside the main thread, or where whoever started the process ignores Ctrl-Z."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN:
            return
        self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._stop)
        self._before[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continue)

    def release(self) -> None:
        """The handlers are those of before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._leave()
        outer = self._before.get(signal.SIGTSTP)
        if callable(outer):
            outer(number, frame)
            return
        innermost = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # To this thread: another one might take it when the handler is back.
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, innermost)

    def _continue(self, number: int, frame: FrameType | None) -> None:
        outer = self._before.get(signal.SIGCONT)
        if callable(outer):
            outer(number, frame)
        self._resume()


def in_foreground(descriptor: int) -> bool:
    """Whether this process may set up the terminal: after `bg` the shell has it."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def cursor_for_the_shell(stream: TextIO) -> Iterator[None]:
    """Around a progress that hides the cursor of the terminal `stream`: it is visible while the process is stopped."""

    def write(sequence: bytes) -> None:
        with suppress(OSError, ValueError):
            if in_foreground(stream.fileno()):
                os.write(stream.fileno(), sequence)

    with suspension(lambda: write(b"\x1b[?25h"), lambda: write(b"\x1b[?25l")):
        yield


@contextmanager
def suspension(leave: Callable[[], None], resume: Callable[[], None]) -> Iterator[None]:
    """A Suspension that is held in this context."""
    held = Suspension(leave, resume)
    held.hold()
    try:
        yield
    finally:
        held.release()
