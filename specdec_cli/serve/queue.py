"""Jobs that wait for the generation thread. Law: bounded, first come first served, and safe from any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from specdec_cli.serve.job import Busy
from specdec_cli.serve.work import Taken

MOST_RETRY_SECONDS = 60
# What a job takes, before one was seen.
FIRST_JOB_SECONDS = 4.0


class Queue:
    """At most `most` jobs wait; `close` lets nobody in any more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._waiting: deque[Taken] = deque()
        self._job_seconds = FIRST_JOB_SECONDS
        self.closed = False

    def put(self, taken: Taken) -> None:
        """Raises: Busy if it is full or closed."""
        with self._changed:
            if self.closed:
                raise Busy("the server is stopping", "try again once it runs", MOST_RETRY_SECONDS)
            if len(self._waiting) >= self._most:
                raise Busy(
                    f"{len(self._waiting)} requests wait already, and {self._most} may",
                    "try again later, or serve with a larger --queue",
                    self._retry_seconds(),
                )
            self._waiting.append(taken)
            self._changed.notify_all()

    def take(self, chosen: Callable[[Taken], bool]) -> Taken | None:
        """The next job if it is `chosen` now; it waits no longer."""
        with self._changed:
            return self._waiting.popleft() if self._waiting and chosen(self._waiting[0]) else None

    def take_cancelled(self) -> list[Taken]:
        """The jobs that nobody waits for any more, or all of them once the queue is closed."""
        with self._changed:
            gone = [taken for taken in self._waiting if taken.cancelled or self.closed]
            self._waiting = deque(taken for taken in self._waiting if taken not in gone)
        return gone

    def wait(self, seconds: float | None) -> bool:
        """Until a job waits or the queue is closed, `seconds` at most; whether that was so."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._waiting) or self.closed, seconds)

    def position(self, taken: Taken) -> int:
        """How many wait before it; 0 once it does not wait."""
        with self._changed:
            return self._waiting.index(taken) if taken in self._waiting else 0

    def waiting(self) -> tuple[Taken, ...]:
        """All that wait, the next one first."""
        with self._changed:
            return tuple(self._waiting)

    def took(self, seconds: float) -> None:
        """A job was done in so many seconds."""
        self._job_seconds += (seconds - self._job_seconds) / 8

    def close(self) -> None:
        """Nobody comes in, and `wait` returns."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _retry_seconds(self) -> int:
        """When a place is likely to be free: once the next job was done."""
        return max(1, min(round(self._job_seconds), MOST_RETRY_SECONDS))
