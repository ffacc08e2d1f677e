"""Jobs that wait for the generation thread. Law: bounded, first come first served, and safe from any thread.

A job for a pair that is not loaded lets those for the loaded one go first that wait when it is the next, and no more.
"""

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
        self._ahead: int | None = None
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

    def take(self, chosen: Callable[[Taken], bool], pair: str | None = None, busy: bool = False) -> Taken | None:
        """The next job for the loaded `pair` if it is `chosen` now; it waits no longer. None: none is loaded.

        Once no such job may go first any more the next is one for another pair, unless that `pair` is `busy`.
        """
        with self._changed:
            found = self._next(pair, busy)
            if found is None or not chosen(found):
                return None
            self._ahead = None if found is self._waiting[0] or self._ahead is None else self._ahead - 1
            self._waiting.remove(found)
            return found

    def _next(self, pair: str | None, busy: bool) -> Taken | None:
        first = self._waiting[0] if self._waiting else None
        if first is None or pair is None or first.job.pair == pair:
            self._ahead = None
            return first
        same = [taken for taken in self._waiting if taken.job.pair == pair]
        self._ahead = len(same) if self._ahead is None else self._ahead
        if self._ahead and same:
            return same[0]
        return None if busy else first

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
