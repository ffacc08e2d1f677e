"""Jobs that wait: bounded, first come first served, safe from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from specdec_cli.serve.job import Busy, JobHandle

MOST_RETRY_SECONDS = 60
# What a job takes, before one was seen.
FIRST_JOB_SECONDS = 4.0


class Queue:
    """At most `most` jobs wait; `close` lets nobody in any more."""

    def __init__(self, most: int) -> None:
        self._most, self._job_seconds = most, FIRST_JOB_SECONDS
        self._changed = threading.Condition()
        self._waiting: list[JobHandle] = []
        self.closed = False

    def put(self, handle: JobHandle) -> None:
        """Raises: Busy if it is full or closed."""
        with self._changed:
            if self.closed:
                raise Busy("the server is stopping", "try again once it runs", MOST_RETRY_SECONDS)
            if len(self._waiting) >= self._most:
                # A place is likely to be free once the next job was done.
                seconds = max(1, min(round(self._job_seconds), MOST_RETRY_SECONDS))
                message = f"{len(self._waiting)} requests wait already, and {self._most} may"
                raise Busy(message, "try again later", seconds)
            self._waiting.append(handle)
            self._changed.notify_all()

    def take(self, may_begin: Callable[[JobHandle], bool]) -> JobHandle | None:
        """The next job if it `may_begin` now; it waits no longer, and nobody overtakes it."""
        with self._changed:
            ready = self._waiting and may_begin(self._waiting[0])
            return self._waiting.pop(0) if ready else None

    def take_cancelled(self) -> list[JobHandle]:
        """The jobs that nobody waits for any more, or all of them once the queue is closed."""
        with self._changed:
            gone = [handle for handle in self._waiting if handle.cancelled or self.closed]
            self._waiting = [handle for handle in self._waiting if handle not in gone]
        return gone

    def wait(self, seconds: float | None) -> bool:
        """Until a job waits or the queue is closed, `seconds` at most; whether that was so."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._waiting) or self.closed, seconds)

    def waiting(self) -> tuple[JobHandle, ...]:
        """All that wait, the next one first."""
        with self._changed:
            return tuple(self._waiting)

    def note_seconds(self, seconds: float) -> None:
        """A job was done in so many seconds."""
        self._job_seconds += (seconds - self._job_seconds) / 8

    def close(self) -> None:
        """Nobody comes in, and `wait` returns."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
