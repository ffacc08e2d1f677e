"""Ctrl-C as a request. Law: the first press ends the reply between two passes, the second ends the program.

In a chat only a second press within a second does: `Presses` counts them.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

TWICE_SECONDS = 1.0


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
    """While active, the first SIGINT sets `requested`, the next one for which `again()` holds raises KeyboardInterrupt;
    SIGTERM unwinds, so that the terminal is restored."""

    def __init__(self, again: Callable[[], bool] = lambda: True) -> None:
        self._again = again
        self._pressed = False

    def requested(self) -> bool:
        return self._pressed

    def __enter__(self) -> Interrupt:
        self._before = {
            signal.SIGINT: signal.signal(signal.SIGINT, self._press),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _terminate),
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _press(self, number: int, frame: FrameType | None) -> None:
        again = self._again()
        if self._pressed and again:
            raise KeyboardInterrupt
        self._pressed = True


@contextmanager
def unwinding() -> Iterator[None]:
    """While active, SIGTERM unwinds, whatever runs: an editor then gives the terminal back."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
