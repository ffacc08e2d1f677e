"""What a scheduler is doing and what it has done (pure): frozen values of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec_cli.events import Reading, RoundDone
from specdec_cli.stats import ChatStats, ratio

# What one row of a wide terminal can show.
MOST_ROUNDS = 32


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """One conversation that is kept: tokens that need not be read again, bytes, seconds since its last use."""

    tokens: int
    nbytes: int
    idle_seconds: float
    busy: bool
    conversation_id: str | None = None
    prefix_only: bool = False


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job. `position` counts the jobs before it, 0 for one that runs. `seconds` are since it came.

    `read_tokens` of the prompt were read and `cached_tokens` reused; `tokens_per_second` is what its client sees.
    `reading` is the last chunk of a text that is being read now, `rounds` are the newest ones, newest last.
    """

    endpoint: str
    position: int
    prompt_tokens: int
    seconds: float
    read_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    passes: int = 0
    tokens_per_second: float | None = None
    conversation_id: str | None = None
    reading: Reading | None = None
    rounds: tuple[RoundDone, ...] = ()

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return ratio(self.accepted_tokens, self.draft_tokens)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the scheduler began. `drafts` are rounds that drafted; [i] of the last two counts draft position i.

    `prompt_tokens` has those that were reused, too. `passes` are the target's.
    `timed_seconds` went into generating `timed_tokens`, those of jobs that are over.
    """

    jobs: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    generated_tokens: int = 0
    timed_tokens: int = 0
    timed_seconds: float = 0.0
    passes: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    drafted_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()

    @classmethod
    def of(cls, stats: ChatStats, jobs: int, failed: int, cancelled: int) -> Totals:
        """The totals of all events that `stats` folded."""
        rounds = stats.rounds
        return cls(
            jobs=jobs,
            failed=failed,
            cancelled=cancelled,
            prompt_tokens=stats.prompt_tokens,
            cached_tokens=stats.cached_tokens,
            prompt_seconds=stats.prefill_seconds,
            generated_tokens=rounds.emitted_tokens,
            timed_tokens=stats.timed_tokens,
            timed_seconds=rounds.decode_seconds,
            passes=rounds.target_passes,
            drafts=sum(rounds.accepted_histogram),
            draft_tokens=rounds.draft_n,
            accepted_tokens=rounds.draft_n_accepted,
            drafted_per_position=tuple(rounds.drafted_at),
            accepted_per_position=tuple(rounds.accepted_at),
        )

    @property
    def read_tokens(self) -> int:
        """Tokens of all prompts that no cache held."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return ratio(self.accepted_tokens, self.draft_tokens)


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """`running` and `waiting` jobs, the `conversations`, of which `most_conversations` are kept, and the totals.

    `loaded`: whether the models are in memory. `pair` is the one that is there or was last, empty for the first.
    `warning` says that the jobs that run will take most of the memory.
    """

    loaded: bool
    running: tuple[JobStatus, ...] = ()
    waiting: tuple[JobStatus, ...] = ()
    conversations: tuple[ConversationStatus, ...] = ()
    most_conversations: int = 1
    cache_bytes: int = 0
    budget_bytes: int = 0
    totals: Totals = field(default_factory=Totals)
    pair: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """How busy a scheduler is: jobs that run and wait, conversations it can keep, and whether the models are here.

    `jobs` are the endpoints of all of them, the running ones first, so a waiting job's place is its position. `pair` is
    the one that is here or was last, empty for the scheduler's first.
    """

    running: int = 0
    waiting: int = 0
    slots: int = 1
    loaded: bool = True
    jobs: tuple[str, ...] = ()
    pair: str = ""
