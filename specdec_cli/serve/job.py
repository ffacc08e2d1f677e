"""One generation that a client asked for, and the seam between protocols and the thread that owns the models (pure).

Law: a protocol knows jobs and events alone; the desk knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specdec_cli.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.events import Event
from specdec_cli.request import Request
from specdec_cli.serve.status import DeskStatus

Deliver = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What to generate: `request` to `prompt` (ids).

    `ends` are the lengths of the prompt's prefixes that later prompts probably share (system message, each turn), in
    ascending order: where a cache cannot be trimmed, a snapshot is worth most there. `key` names the conversation
    where the client does. `noun` says who asks, for the operator, such as `chat/completions`. With `raw` the answer
    continues the prompt's text, as in `Session.reply`. `pair` is the one that answers, empty for the desk's first.
    """

    prompt: tuple[int, ...]
    request: Request
    ends: tuple[int, ...] = ()
    key: str | None = None
    noun: str = ""
    raw: bool = False
    pair: str = ""


class Ticket(Protocol):
    """A job that was taken on."""

    @property
    def position(self) -> int:
        """How many jobs wait before it; 0 once it runs."""
        ...

    def cancel(self) -> None:
        """Nobody waits for it any more: it ends before its next round, or its next chunk of the prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """How busy a desk is: jobs that run, jobs that wait, conversations it can keep, and whether the models are here.

    `jobs` are the nouns of all of them, the running ones first, so a waiting job's place is its position. `pair` is the
    one that is here or was last, empty for the desk's first.
    """

    running: int = 0
    waiting: int = 0
    slots: int = 1
    loaded: bool = True
    jobs: tuple[str, ...] = ()
    pair: str = ""


class Desk(Protocol):
    """Where jobs are handed in; its one thread owns the models."""

    def submit(self, job: Job, deliver: Deliver) -> Ticket:
        """Take `job` on: `deliver` gets its events, from another thread, the last one a Finish or a Failure.

        Raises: Busy if too many wait, TooLong if prompt and answer exceed the context, TooLarge for the memory.
        """
        ...

    def health(self) -> Health:
        """How busy it is; from any thread, without waiting."""
        ...

    def status(self) -> DeskStatus:
        """What it is doing and has done; from any thread, without waiting. A job's last event comes after its sums."""
        ...

    def close(self) -> None:
        """End every job and the thread; from any thread."""
        ...


class Busy(SpecdecError):
    """The queue is full; `retry_seconds` says when to come back (HTTP 429)."""

    def __init__(self, message: str, hint: str, retry_seconds: int) -> None:
        super().__init__(message, hint)
        self.retry_seconds = retry_seconds


class TooLong(SpecdecError):
    """The prompt does not fit into the context (HTTP 400, "prompt is too long")."""

    exit_code = UsageError.exit_code


class TooLarge(SpecdecError):
    """Its caches do not fit into the memory (HTTP 413)."""

    exit_code = DoesNotFit.exit_code
