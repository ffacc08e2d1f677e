"""Signals as requests: one Ctrl-C ends the reply between two passes.

The second Ctrl-C ends the program. In a chat only a second press within a second does: `Presses` counts them. Nothing
interrupts the ending of the program.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TWICE_SECONDS = 1.0
# What unwinds may wait for ever: an event loop waits for its tasks, and the terminal that they need may be gone.
ENDING_SECONDS = 10.0
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What ends the program: told to, terminal closed, Ctrl-\\."""


class Presses:
    """Counts presses of Ctrl-C over a whole chat, whoever sees them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def again(self) -> bool:
        """One press now; whether it follows another within a second."""
        now, before = self._clock(), self._last
        self._last = now
        return before is not None and now - before <= TWICE_SECONDS


class Interrupt:
    """While active, the first SIGINT sets `requested`; the next for which `again()` holds raises KeyboardInterrupt."""

    def __init__(self, again: Callable[[], bool] = lambda: True) -> None:
        self._again = again
        self._pressed = False

    def requested(self) -> bool:
        return self._pressed

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._press:  # else the program is ending
            signal.signal(signal.SIGINT, self._before)

    def _press(self, number: int, frame: FrameType | None) -> None:
        again = self._again()
        if self._pressed and again:
            raise KeyboardInterrupt
        self._pressed = True


@contextmanager
def unwinding() -> Iterator[None]:
    """While active, a signal of ENDING unwinds, so that whoever changed the terminal gives it back.

    Signals that the program was started to ignore (nohup) stay ignored. Nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    heard = [number for number in ENDING if before[number] != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in heard:
            if signal.getsignal(number) == _end:
                signal.signal(number, before[number])


def _end(number: int, frame: FrameType | None) -> None:
    """The first signal ends the program; later ones, Ctrl-C included, must not break off the giving back.

    A window that was closed leaves no process behind: after ENDING_SECONDS the program is ended wherever it is.
    """
    for each in (*ENDING, signal.SIGINT):
        signal.signal(each, _ending_already)
    timer = threading.Timer(ENDING_SECONDS, os._exit, (128 + number,))
    timer.daemon = True  # it keeps no program alive
    timer.start()
    sys.exit(128 + number)


def _ending_already(number: int, frame: FrameType | None) -> None:
    """A function rather than SIG_IGN: CPython complains of a signal that came just before it was ignored."""
