"""Signals as requests: one Ctrl-C ends the reply between two passes.

The second Ctrl-C of a reply ends the program, and at a chat's prompt one that follows another within a second, which
`Presses` counts. Nothing interrupts the ending of the program.
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


# How long a reply may go on after a press of Ctrl-C before a person is answered; its passes hear no signal.
PATIENCE_SECONDS = (0.3, 1.0)


class Interrupt:
    """While active, the first SIGINT sets `requested`, the next raises KeyboardInterrupt; each calls `pressed`.

    `stuck(n)` is called by another thread where the reply still goes on some time after press n: while a pass is
    computed, Python runs no handler.
    """

    def __init__(
        self, pressed: Callable[[], object] = lambda: None, stuck: Callable[[int], None] | None = None
    ) -> None:
        self._tell, self._stuck = pressed, stuck
        self._pressed = False
        self._ended = threading.Event()

    def requested(self) -> bool:
        return self._pressed

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._press)
        if self._stuck:
            reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
            self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(reading, self._stuck), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._stuck:
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._writing)
        if signal.getsignal(signal.SIGINT) == self._press:  # else the program is ending
            signal.signal(signal.SIGINT, self._before)

    def _watch(self, reading: int, stuck: Callable[[int], None]) -> None:
        presses = 0
        while number := os.read(reading, 1):  # as the interpreter wrote it, whatever the main thread is in
            if number[0] == signal.SIGINT:
                presses += 1
                if not self._ended.wait(PATIENCE_SECONDS[min(presses, 2) - 1]):
                    stuck(presses)
        os.close(reading)

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._tell()
        if self._pressed:
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
