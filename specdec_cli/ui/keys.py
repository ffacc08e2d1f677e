"""Single key presses. Law: the terminal is given back as it was, and Ctrl-C stays a signal."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

_LONGEST = 8


class Keys:
    """While active, keys arrive at once and are not echoed. A key that sends a sequence arrives as one string."""

    def __init__(self, stream: TextIO, cancelled: Callable[[], bool]) -> None:
        """`stream` must be a terminal; `cancelled` ends a wait."""
        self._descriptor = stream.fileno()
        self._cancelled = cancelled

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def read(self) -> str:
        """The next key; an empty string at the end of input and when cancelled."""
        while not self._cancelled():
            if select.select([self._descriptor], [], [], 0.1)[0]:
                pressed = os.read(self._descriptor, 1)
                while pressed == b"\x1b" or pressed.startswith(b"\x1b["):
                    complete = len(pressed) > 2 and 0x40 <= pressed[-1] <= 0x7E
                    more = not complete and len(pressed) < _LONGEST
                    if not more or not select.select([self._descriptor], [], [], 0.02)[0]:
                        break
                    pressed += os.read(self._descriptor, 1)
                return pressed.decode("latin-1")
        return ""
