"""Events on their way from the desk's thread into the loop. Law: the desk never waits for a client."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from specdec_cli.events import Event

Letter = tuple[int, Event]
"""(which answer, event)."""


class Mailbox:
    """The events of all answers to one request; `gone` once nobody reads them any more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._letters: deque[Letter] = deque()
        self._arrived = asyncio.Event()
        self.gone = False

    def deliver(self, choice: int, event: Event) -> None:
        """From any thread, at any time."""
        self._letters.append((choice, event))
        with suppress(RuntimeError):  # the loop has ended, and its clients with it
            self._loop.call_soon_threadsafe(self._arrived.set)

    def leave(self) -> None:
        """Nobody reads on; from the loop."""
        self.gone = True
        self._arrived.set()

    async def take(self, seconds: float | None) -> list[Letter]:
        """All that has come; waits for the first, and is empty after so many seconds, or when `gone`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._letters and not self.gone:
                    self._arrived.clear()
                    await self._arrived.wait()
        return [] if self.gone else [self._letters.popleft() for _ in range(len(self._letters))]
