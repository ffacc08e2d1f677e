"""What every display is. Law: it only consumes events; whatever happens, `close` leaves the terminal as it was."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from specdec_cli.events import Event


class Display(Protocol):
    """Shows one reply after another: from Start to Finish or Failure, each."""

    def handle(self, event: Event) -> None:
        """Shows one event. Raises: OSError when the reader has gone (BrokenPipeError) or the disk is full."""

    def close(self) -> None:
        """Gives the terminal back, also amid a reply; may be called again and never raises for a closed stream."""


class Together:
    """Several displays as one, for `--trace` beside the usual one. All are closed, whatever closing one raises."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = tuple(displays)

    def handle(self, event: Event) -> None:
        """Hands the event to each, in order."""
        for display in self._displays:
            display.handle(event)

    def close(self) -> None:
        """Closes all, the last one first."""
        with ExitStack() as stack:
            for display in self._displays:
                stack.callback(display.close)
