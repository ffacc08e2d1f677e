"""One generation that a client asked for: what is known of it, where it waits, and why it may be refused (pure).

Protocols know jobs, handles and events alone; the scheduler knows nothing of HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from specdec_cli.core.errors import SpecdecError, UsageError, untrusted
from specdec_cli.core.events import Event, Prefill, Reading, RoundDone
from specdec_cli.core.request import Request
from specdec_cli.core.stats import ChatStats

Deliver = Callable[[Event], None]
"""Takes a job's events, from another thread; the last one is a Finish or a Failure."""
# Longest wait that a client is told; and what a job takes, before one was seen.
MOST_RETRY_SECONDS, FIRST_JOB_SECONDS = 60, 4.0


@dataclass(frozen=True, slots=True)
class Job:
    """What to generate: `request` to `prompt` (ids).

    `reusable_prefixes` are the lengths of the prompt's prefixes that later prompts probably share (system message, each
    turn), in ascending order: where a cache cannot be trimmed, a snapshot is worth most there. `conversation_id` is the
    client's name for it, which others of its conversations may have too. `endpoint` says who asks, for the operator,
    such as `chat/completions`. With `raw` the answer continues the prompt's text, as in `Session.reply`. `pair` is the
    one that answers, empty for the scheduler's first. With `unloads` the models go as soon as no job is left, unless
    one came later that keeps them.
    With `open_ended` nobody asked for the answer's length: it is shorter where the memory holds no more.
    """

    prompt: tuple[int, ...]
    request: Request
    reusable_prefixes: tuple[int, ...] = ()
    conversation_id: str | None = None
    endpoint: str = ""
    raw: bool = False
    pair: str = ""
    unloads: bool = False
    open_ended: bool = False

    @property
    def only_unloads(self) -> bool:
        """Whether nothing is to be read or said: a model is not loaded to be unloaded."""
        return self.unloads and self.request.max_tokens == 0


class Busy(SpecdecError):
    """The queue is full; `retry_seconds` says when to come back (HTTP 429)."""

    def __init__(self, message: str, hint: str, retry_seconds: int) -> None:
        super().__init__(message, hint)
        self.retry_seconds = retry_seconds


class TooLong(UsageError):
    """The prompt does not fit into the context (HTTP 400, "prompt is too long")."""


class JobHandle:
    """A job that was taken on, and what is known of it. `came_at` is the clock when it came.

    `read_tokens` of the prompt were read, or were in a cache. `reading` is the last chunk of a text that is being read
    now.
    """

    def __init__(self, job: Job, deliver: Deliver, came_at: float) -> None:
        self.job, self.came_at, self._deliver = job, came_at, deliver
        self.cancelled = False
        self.read_tokens = 0
        self.reading: Reading | None = None

    @property
    def is_read(self) -> bool:
        """Whether all of its prompt was read."""
        return self.read_tokens == len(self.job.prompt)

    def cancel(self) -> None:
        """Nobody waits for it any more: it ends before its next round, or its next chunk of the prompt."""
        self.cancelled = True

    def notify(self, event: Event) -> None:
        """Count `event` and hand it on. A client that cannot take it is gone, which cancels the job."""
        match event:
            case Reading():
                self.reading = event
                if event.reader == "target":
                    self.read_tokens = event.read_tokens
            case Prefill():
                self.reading, self.read_tokens = None, event.prompt_tokens
            case RoundDone():
                self.reading = None
        try:
            with untrusted(unforeseen):
                self._deliver(event)
        except SpecdecError:
            self.cancelled = True


def unforeseen(reason: str) -> SpecdecError:
    """What nobody foresaw, as a person reads it."""
    return SpecdecError(f"the request failed: {reason}", "try again; specdec doctor --selftest checks the device")


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


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """What a scheduler is doing, and the sums since it began: jobs that ended, `totals` of their events.

    `loaded`: whether the models are in memory. `pair` is the one that is there or was last, empty for the first.
    `sharing` jobs share their passes; `turns` says why none ever does, empty where they may. `conversations` of
    `most_conversations` are kept, in `cache_bytes`. `warning` says that the jobs that run will take most of the memory.
    After `idle_seconds` without a job the models go; None: never.
    """

    loaded: bool = True
    running: tuple[JobHandle, ...] = ()
    waiting: tuple[JobHandle, ...] = ()
    conversations: int = 0
    most_conversations: int = 1
    cache_bytes: int = 0
    totals: ChatStats = field(default_factory=ChatStats)
    jobs: int = 0
    pair: str = ""
    warning: str = ""
    sharing: int = 0
    turns: str = ""
    idle_seconds: float | None = None
