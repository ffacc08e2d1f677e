"""Whether a job may come in (pure). Law: it is refused before anything is allocated, with both numbers."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.serve.job import Job, TooLarge, TooLong
from specdec_cli.session.capacity import Capacity


def require_room(job: Job, capacity: Capacity) -> None:
    """Raises: TooLong for the context, TooLarge for the memory, were it to run alone."""
    prompt, limit = len(job.prompt), capacity.context_limit(job.request)
    if limit is not None and prompt >= limit:
        raise TooLong(
            f"prompt is too long: {prompt} tokens > {limit - 1} maximum",
            "shorten the conversation, or serve a pair with a longer context",
        )
    need = capacity.weight_bytes + job_bytes(job, capacity)
    if need > capacity.limit_bytes:
        raise TooLarge(
            f"{tokens_of(job, capacity)} tokens of prompt and answer need {need / 1e9:.2f} GB with the models; "
            f"{capacity.limit_bytes / 1e9:.2f} GB are usable",
            f"ask for a shorter answer (max_tokens), or shorten the prompt; {capacity.relief}",
        )


def tokens_of(job: Job, capacity: Capacity) -> int:
    """Tokens that prompt and answer have at most."""
    tokens, limit = len(job.prompt) + job.request.max_tokens, capacity.context_limit(job.request)
    return tokens if limit is None else min(tokens, limit)


def job_bytes(job: Job, capacity: Capacity) -> int:
    """Bytes of its caches once it is done."""
    return capacity.cache_bytes(tokens_of(job, capacity))


def room_beside(jobs: Sequence[Job], capacity: Capacity) -> int:
    """Bytes that are left beside the weights and all `jobs`, once they are done."""
    return capacity.limit_bytes - capacity.weight_bytes - sum(job_bytes(job, capacity) for job in jobs)
