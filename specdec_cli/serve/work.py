"""One job that runs. Law: a turn is one chunk of a prompt or one round, and its seconds are counted.

Whatever happens in a turn, the job's client hears of it, and the thread lives on.
"""

from __future__ import annotations

from collections.abc import Iterator

from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.errors import SpecdecError, untrusted
from specdec_cli.events import Event, Failure, Finish, Prefill, Reading, RoundDone
from specdec_cli.serve.job import Deliver, Job
from specdec_cli.serve.slots import Kept
from specdec_cli.serve.status import KEPT_ROUNDS, JobStatus

# While other jobs run, a chunk of a prompt takes about so long, and at first has so many tokens.
SHARED_CHUNK_SECONDS, FIRST_CHUNK_TOKENS, LEAST_CHUNK_TOKENS = 0.5, 256, 64


class Taken:
    """A job that was taken on, and what is known of it. `came` is the clock when it came."""

    def __init__(self, job: Job, deliver: Deliver, came: float) -> None:
        self.job, self.came = job, came
        self.cancelled = False
        self.failed = False
        self.prompt_read = self.cached = self.generated = self.drafted = self.accepted = self.passes = 0
        self.reading: Reading | None = None
        self.rounds: tuple[RoundDone, ...] = ()
        self.first_at: float | None = None
        self._deliver = deliver

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.cancelled = True

    def tell(self, event: Event, now: float) -> None:
        """Count `event` and hand it on. A client that cannot take it is gone, which cancels the job."""
        match event:
            case Reading():
                self.reading = event
                if event.reader == "target":
                    self.prompt_read = event.read_tokens
            case Prefill():
                self.reading = None
                self.prompt_read, self.cached = event.prompt_tokens, event.cached_tokens
            case RoundDone(round=round):
                self.reading = None
                self.rounds = (*self.rounds[1 - KEPT_ROUNDS :], event)
                self.passes += 1
                self.first_at = now if self.first_at is None else self.first_at
                self.generated += len(round.emitted)
                self.drafted += len(round.draft)
                self.accepted += round.accepted
            case Failure():
                self.failed = True
        try:
            with untrusted(failure_of):
                self._deliver(event)
        except SpecdecError:
            self.cancelled = True

    def status(self, position: int, now: float) -> JobStatus:
        """As an operator sees it at `now`."""
        seconds = 0.0 if self.first_at is None else now - self.first_at
        return JobStatus(
            noun=self.job.noun,
            position=position,
            prompt_tokens=len(self.job.prompt),
            seconds=now - self.came,
            read_tokens=max(self.prompt_read - self.cached, 0),
            cached_tokens=self.cached,
            generated_tokens=self.generated,
            draft_tokens=self.drafted,
            accepted_tokens=self.accepted,
            passes=self.passes,
            tokens_per_second=(self.generated - 1) / seconds if seconds and self.generated > 1 else None,
            key=self.job.key,
            reading=self.reading,
            rounds=self.rounds,
        )


class Work:
    """A taken job in its slot. It `had_seconds` of turns, `last_seconds` in the last one."""

    def __init__(self, taken: Taken, kept: Kept, had_seconds: float = 0.0) -> None:
        self.taken, self.kept, self.had_seconds, self.last_seconds = taken, kept, had_seconds, 0.0
        self._chunk_tokens, self._read_tokens = FIRST_CHUNK_TOKENS, 0
        job = taken.job
        self._events: Iterator[Event] = kept.session.reply(
            job.prompt, job.request, lambda: taken.cancelled, raw=job.raw
        )

    def reads_for(self, job: Job) -> bool:
        """Whether it is reading most of what `job` has to read."""
        if self.taken.prompt_read == len(self.taken.job.prompt):
            return False
        shared = common_prefix(self.taken.job.prompt, job.prompt)
        return 2 * shared > len(job.prompt) and shared > self.kept.length

    def turn(self, alone: bool = True) -> Iterator[Event]:
        """The events of one turn; the last turn's last one is a Finish or a Failure. It is short unless `alone`."""
        self.kept.slot.target.most_chunk_tokens = None if alone else self._chunk_tokens
        began = self.kept.watch()
        try:
            with untrusted(failure_of):
                while True:
                    with self.kept.watch:
                        event = next(self._events)
                    self.last_seconds = self.kept.watch() - began
                    if isinstance(event, Reading) and event.reader == "target":
                        self._measure_chunk(event)
                    yield event
                    if isinstance(event, Reading | RoundDone | Finish):
                        break
        except SpecdecError as error:
            yield Failure(error.message, error.hint, error.exit_code)
        self.had_seconds += self.last_seconds

    def _measure_chunk(self, event: Reading) -> None:
        """The next chunk beside others: as many tokens, a power of two, as were read in the time that one may take."""
        tokens, self._read_tokens = event.read_tokens - self._read_tokens, event.read_tokens
        if tokens < event.read_tokens and self.last_seconds:  # of the first chunk it is not known where it began
            within = int(tokens / self.last_seconds * SHARED_CHUNK_SECONDS)
            self._chunk_tokens = max(1 << within.bit_length() >> 1, LEAST_CHUNK_TOKENS)


def failure_of(reason: str) -> SpecdecError:
    """What nobody foresaw, as a person reads it."""
    return SpecdecError(f"the request failed: {reason}", "try again; specdec doctor --selftest checks the device")
