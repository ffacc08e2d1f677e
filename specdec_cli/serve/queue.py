"""Jobs that were taken on, and those of them that wait: bounded, first come first served, safe from any thread.

A job for a pair that is not loaded lets those for the loaded one go first that wait when it is the next, and no more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from specdec_cli.errors import SpecdecError, untrusted
from specdec_cli.events import Event, Prefill, Reading, RoundDone
from specdec_cli.serve.job import Busy, Deliver, Job
from specdec_cli.serve.status import MOST_ROUNDS, JobStatus

MOST_RETRY_SECONDS = 60
# What a job takes, before one was seen.
FIRST_JOB_SECONDS = 4.0


class JobHandle:
    """A job that was taken on, and what is known of it. `came_at` is the clock when it came."""

    def __init__(self, job: Job, deliver: Deliver, came_at: float) -> None:
        self.job, self.came_at = job, came_at
        self.cancelled = False
        self._deliver = deliver
        self._first_at: float | None = None
        self._status = JobStatus(job.endpoint, 0, len(job.prompt), 0.0, conversation_id=job.conversation_id)

    @property
    def is_read(self) -> bool:
        """Whether all of its prompt was read."""
        return self._status.read_tokens + self._status.cached_tokens == len(self.job.prompt)

    def cancel(self) -> None:
        """Nobody waits for it any more: it ends before its next round, or its next chunk of the prompt."""
        self.cancelled = True

    def notify(self, event: Event, now: float) -> None:
        """Count `event` and hand it on. A client that cannot take it is gone, which cancels the job."""
        known = self._status
        match event:
            case Reading(reader="target"):
                self._status = replace(known, reading=event, read_tokens=event.read_tokens)
            case Reading():
                self._status = replace(known, reading=event)
            case Prefill():
                read = max(event.prompt_tokens - event.cached_tokens, 0)
                self._status = replace(known, reading=None, read_tokens=read, cached_tokens=event.cached_tokens)
            case RoundDone(round=round):
                self._first_at = now if self._first_at is None else self._first_at
                self._status = replace(
                    known,
                    reading=None,
                    rounds=(*known.rounds[1 - MOST_ROUNDS :], event),
                    passes=known.passes + 1,
                    generated_tokens=known.generated_tokens + len(round.emitted),
                    draft_tokens=known.draft_tokens + len(round.draft),
                    accepted_tokens=known.accepted_tokens + round.accepted,
                )
        try:
            with untrusted(unforeseen):
                self._deliver(event)
        except SpecdecError:
            self.cancelled = True

    def status(self, position: int, now: float) -> JobStatus:
        """As an operator sees it at `now`; `position` jobs wait before it."""
        tokens, seconds = self._status.generated_tokens, 0.0 if self._first_at is None else now - self._first_at
        pace = (tokens - 1) / seconds if seconds and tokens > 1 else None
        return replace(self._status, position=position, seconds=now - self.came_at, tokens_per_second=pace)


def unforeseen(reason: str) -> SpecdecError:
    """What nobody foresaw, as a person reads it."""
    return SpecdecError(f"the request failed: {reason}", "try again; specdec doctor --selftest checks the device")


class Queue:
    """At most `most` jobs wait; `close` lets nobody in any more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._waiting: deque[JobHandle] = deque()
        self._job_seconds = FIRST_JOB_SECONDS
        self._ahead: int | None = None
        self.closed = False

    def put(self, handle: JobHandle) -> None:
        """Raises: Busy if it is full or closed."""
        with self._changed:
            if self.closed:
                raise Busy("the server is stopping", "try again once it runs", MOST_RETRY_SECONDS)
            if len(self._waiting) >= self._most:
                raise Busy(
                    f"{len(self._waiting)} requests wait already, and {self._most} may",
                    "try again later, or serve with a larger --queue",
                    # A place is likely to be free once the next job was done.
                    max(1, min(round(self._job_seconds), MOST_RETRY_SECONDS)),
                )
            self._waiting.append(handle)
            self._changed.notify_all()

    def take(
        self, may_begin: Callable[[JobHandle], bool], pair: str | None = None, busy: bool = False
    ) -> JobHandle | None:
        """The next job for the loaded `pair` (None: none is loaded) if it `may_begin` now; it waits no longer.

        Once no such job may go first any more the next is one for another pair, unless that `pair` is `busy`.
        """
        with self._changed:
            handle = self._next(pair, busy)
            if handle is None or not may_begin(handle):
                return None
            self._ahead = None if handle is self._waiting[0] or self._ahead is None else self._ahead - 1
            self._waiting.remove(handle)
            return handle

    def _next(self, pair: str | None, busy: bool) -> JobHandle | None:
        first = self._waiting[0] if self._waiting else None
        if first is None or pair is None or first.job.pair == pair:
            self._ahead = None
            return first
        same = [handle for handle in self._waiting if handle.job.pair == pair]
        self._ahead = len(same) if self._ahead is None else self._ahead
        if self._ahead and same:
            return same[0]
        return None if busy else first

    def take_cancelled(self) -> list[JobHandle]:
        """The jobs that nobody waits for any more, or all of them once the queue is closed."""
        with self._changed:
            gone = [handle for handle in self._waiting if handle.cancelled or self.closed]
            self._waiting = deque(handle for handle in self._waiting if handle not in gone)
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
