"""Ctrl-Z, `bg` and `fg` around something drawn on a terminal. Law: the shell gets a clean terminal, visible cursor.

Ctrl-Z sends SIGTSTP. A handler of ours cleans up, stops the process as the default does, and goes on afterwards.
Nothing is written through Python's streams here: a handler may run amid a write of theirs.

Under a wrapper (`uv run`, a script) the shell may have the terminal back before the handler runs, and after `bg` the
process goes on without it: then the terminal is left alone until it is ours again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TextIO

POLL_SECONDS: Final = 0.2
"""How soon a terminal that came back without a signal is noticed: `fg` sends none to a process that runs."""

_STANDARD = (0, 1, 2)


class Suspension:
    """While held, `leave()` is called before the process stops, and `resume()` once it has the terminal again.

    Of two, the one held later leaves first and resumes last.
    """

    def __init__(self, leave: Callable[[], None], resume: Callable[[], None]) -> None:
        self.leave, self.resume = leave, resume

    def hold(self) -> None:
        """Nothing outside the main thread, or where whoever started the process ignores Ctrl-Z."""
        if threading.current_thread() is threading.main_thread():
            _job.hold(self)

    def release(self) -> None:
        """The handlers are those of before as soon as nothing is held."""
        if threading.current_thread() is threading.main_thread():
            _job.release(self)


class _Job:
    """This process as a job of a shell: its one pair of handlers, and what is held, in order."""

    def __init__(self) -> None:
        self._held: list[Suspension] = []
        self._before: dict[signal.Signals, Any] = {}
        self._stopping = False

    def hold(self, one: Suspension) -> None:
        if any(one is held for held in self._held):
            return
        if not self._held:
            if signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN:
                return
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._stop)
            self._before[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._continue)
        self._held.append(one)

    def release(self, one: Suspension) -> None:
        self._held = [held for held in self._held if held is not one]
        while self._before and not self._held:
            signal.signal(*self._before.popitem())

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:  # a second Ctrl-Z while the first is being obeyed
            return
        self._stopping = True
        for held in reversed(self._held):
            held.leave()
        outer = self._before.get(signal.SIGTSTP)
        if callable(outer):
            outer(number, frame)
        else:
            ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            # To this thread: another one might take it when the handler is back.
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, ours)
        self._stopping = False
        self._resume()

    def _continue(self, number: int, frame: FrameType | None) -> None:
        outer = self._before.get(signal.SIGCONT)
        if callable(outer):
            outer(number, frame)
        if not self._stopping:  # stopped by what no handler sees
            self._resume()

    def _resume(self) -> None:
        if not in_background():
            for held in self._held:
                held.resume()
            return
        before = signal.getsignal(signal.SIGALRM)

        def look(number: int, frame: FrameType | None) -> None:
            if not in_background() or not self._held:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
                for held in self._held:
                    held.resume()

        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, POLL_SECONDS, POLL_SECONDS)


_job = _Job()


def in_background(*descriptors: int) -> bool:
    """Whether the shell has the terminal of `descriptors` (the standard streams'), and this process may not set it up.

    False where none of them is the terminal that controls this process.
    """
    for descriptor in descriptors or _STANDARD:
        try:
            return os.tcgetpgrp(descriptor) != os.getpgrp()
        except (OSError, ValueError):
            continue
    return False


@contextmanager
def cursor_for_the_shell(stream: TextIO) -> Iterator[None]:
    """Around a progress that hides the cursor of the terminal `stream`: it is visible while the process is stopped."""

    def write(sequence: bytes) -> None:
        with suppress(OSError, ValueError):
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
