"""One generation that a client asked for, and whether there is room for it (pure).

Protocols know jobs, handles and events alone; the scheduler knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec_cli.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.events import Event
from specdec_cli.request import Request
from specdec_cli.session.capacity import Capacity

Deliver = Callable[[Event], None]
"""Takes a job's events, from another thread; the last one is a Finish or a Failure."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to generate: `request` to `prompt` (ids).

    `reusable_prefixes` are the lengths of the prompt's prefixes that later prompts probably share (system message, each
    turn), in ascending order: where a cache cannot be trimmed, a snapshot is worth most there. `conversation_id` names
    the conversation where the client does. `endpoint` says who asks, for the operator, such as `chat/completions`. With
    `raw` the answer continues the prompt's text, as in `Session.reply`. `pair` is the one that answers, empty for the
    scheduler's first.
    """

    prompt: tuple[int, ...]
    request: Request
    reusable_prefixes: tuple[int, ...] = ()
    conversation_id: str | None = None
    endpoint: str = ""
    raw: bool = False
    pair: str = ""


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


def require_room(job: Job, capacity: Capacity) -> None:
    """Refuse a job before anything is allocated for it.

    Raises: TooLong for the context, TooLarge for the memory, were it to run alone.
    """
    prompt, limit = len(job.prompt), capacity.context_limit(job.request)
    if limit is not None and prompt >= limit:
        raise TooLong(
            f"prompt is too long: {prompt} tokens > {limit - 1} maximum",
            "shorten the conversation, or serve a pair with a longer context",
        )
    need = capacity.weight_bytes + job_bytes(job, capacity)
    if need > capacity.limit_bytes:
        raise TooLarge(
            f"{most_tokens(job, capacity)} tokens of prompt and answer need {need / 1e9:.2f} GB with the models; "
            f"{capacity.limit_bytes / 1e9:.2f} GB are usable",
            f"ask for a shorter answer (max_tokens), or shorten the prompt; {capacity.relief}",
        )


def most_tokens(job: Job, capacity: Capacity) -> int:
    """Tokens that prompt and answer have at most."""
    tokens, limit = len(job.prompt) + job.request.max_tokens, capacity.context_limit(job.request)
    return tokens if limit is None else min(tokens, limit)


def job_bytes(job: Job, capacity: Capacity) -> int:
    """Bytes of its caches once it is done."""
    return capacity.cache_bytes(most_tokens(job, capacity))


def room_beside(jobs: Sequence[Job], capacity: Capacity) -> int:
    """Bytes that are left beside the weights and all `jobs`, once they are done."""
    return capacity.limit_bytes - capacity.weight_bytes - sum(job_bytes(job, capacity) for job in jobs)
