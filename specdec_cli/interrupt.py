"""Ctrl-C as a request. Law: the first press ends the reply between two passes, the second ends the program."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType


class Interrupt:
    """While active, the first SIGINT sets `requested`, the next raises KeyboardInterrupt; SIGTERM unwinds, so that
    the terminal is restored."""

    def __init__(self) -> None:
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
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
