"""The jobs that run: a job's turn, and the target passes that several share.

A job decodes alone while it is the only one. From two on they take turns, each with its drafts, or share passes, with
drafts in them or without: whatever gives each of them its next token sooner.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from specdec_cli.apps.serve.conversations import CachedConversation
from specdec_cli.apps.serve.job import Job, JobHandle, TooLarge, TooLong, unforeseen
from specdec_cli.core.errors import Refused, SpecdecError, untrusted
from specdec_cli.core.events import Event, Failure, Finish, Reading, RoundDone
from specdec_cli.core.kinds import effective_rule
from specdec_cli.engine.batch import Batch, Seat, Waiting, read_side_by_side
from specdec_cli.engine.batch_proof import prove
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.cache.rows import MOST_GAPS
from specdec_cli.engine.planning.policy import shares
from specdec_cli.pairs.limits import too_large, too_long
from specdec_cli.session.capacity import Capacity
from specdec_cli.session.session import LoadedPair

# While other jobs run, a chunk of a prompt takes about so long, and at first has so many tokens.
SHARED_CHUNK_SECONDS, FIRST_CHUNK_TOKENS, LEAST_CHUNK_TOKENS = 0.5, 256, 64
# Passes that the same jobs shared after which it is known what they cost; the first one copies caches.
TRIED_PASSES = 3
# Tokens out of passes with drafts, and of passes without, after which it is known for so many jobs which take less time
# a token; and passes after which that is asked again.
COMPARED_TOKENS, RENEWED_PASSES = 24, 128
# Prompts that are read in one pass, and how much longer than the shortest one the longest may be beside twice that.
MOST_PROMPTS, MOST_PADDED = 8, 16


class RunningJob:
    """A job in its conversation. It `had_seconds` of turns, `last_seconds` in the last one; its last round `emitted` so
    many tokens, and `drafted` or not.

    `seat` is its place in shared passes; while it `waits` it goes on once such a pass was queued, or failed by `error`.
    It `began` with its first turn, and `joins` once its prompt was read beside others.
    """

    def __init__(self, handle: JobHandle, kept: CachedConversation, seat: Seat, had_seconds: float = 0.0) -> None:
        self.handle, self.kept, self.had_seconds, self.last_seconds = handle, kept, had_seconds, 0.0
        self.seat, self.waits, self.began, self.joins = seat, False, False, False
        self.error: Exception | None = None
        self.emitted, self.drafted = 1, False
        self._chunk_tokens, self._read_tokens = FIRST_CHUNK_TOKENS, 0
        job = handle.job
        self._events: Generator[Event | Waiting] = kept.session.steps(
            job.prompt, job.request, lambda: handle.cancelled, job.raw, seat
        )

    def reads_for(self, job: Job) -> bool:
        """Whether it is reading most of what `job` has to read."""
        if self.handle.is_read:
            return False
        shared = common_prefix(self.handle.job.prompt, job.prompt)
        return 2 * shared > len(job.prompt) and shared > self.kept.length

    @property
    def shares(self) -> bool:
        """Whether it shares passes with others, or is about to."""
        return self.seat.wanted

    @property
    def is_served(self) -> bool:
        """Whether the pass that it waits for was queued, or failed; one that joined since is in the next."""
        return self.seat.queued or self.error is not None

    @property
    def decodes(self) -> bool:
        """Whether its prompt is read."""
        return self.joins or self.handle.is_read

    @property
    def is_late(self) -> bool:
        """Whether the next shared pass waits for it to join: a round is soon done, a long reading is not."""
        return self.shares and self.decodes and not self.waits and self.handle.reading is None

    def turn(self, alone: bool = True) -> Iterator[Event]:
        """The events of one turn, up to where it `waits`; the last turn's last one is a Finish or a Failure.

        It is short unless `alone`. Whatever happens in a turn, the job's client hears of it, and the thread lives on.
        """
        self.began = True
        self.kept.slot.target.most_chunk_tokens = None if alone else self._chunk_tokens
        began = self.kept.watch()
        try:
            with untrusted(unforeseen):
                while True:
                    with self.kept.watch:
                        event = next(self._events) if self.error is None else self._events.throw(self.error)
                    self.last_seconds = self.kept.watch() - began
                    self.waits = isinstance(event, Waiting)
                    if isinstance(event, Waiting):
                        break
                    if isinstance(event, Reading) and event.reader == "target":
                        self._measure_chunk(event)
                    if isinstance(event, RoundDone):
                        self.emitted, self.drafted = len(event.round.emitted), bool(event.round.draft)
                    yield event
                    if isinstance(event, Reading | RoundDone | Finish):
                        break
        except SpecdecError as error:
            self.waits = False
            yield Failure(error.message, error.hint, error.exit_code)

    def _measure_chunk(self, event: Reading) -> None:
        """The next chunk beside others: as many tokens, a power of two, as were read in the time that one may take."""
        tokens, self._read_tokens = event.read_tokens - self._read_tokens, event.read_tokens
        if tokens < event.read_tokens and self.last_seconds:  # of the first chunk it is not known where it began
            within = int(tokens / self.last_seconds * SHARED_CHUNK_SECONDS)
            self._chunk_tokens = max(1 << within.bit_length() >> 1, LEAST_CHUNK_TOKENS)


@dataclass(frozen=True, slots=True)
class Proof:
    """Why requests for a pair never share passes, empty where they may, and whether these may hold drafts."""

    refusal: str
    takes_drafts: bool


class Comparison:
    """Passes with drafts and without, of as many jobs: costs of a job alone foretell those of several badly."""

    def __init__(self) -> None:
        self._passes, self._seconds, self._tokens = 0, [0.0, 0.0], [0, 0]

    def observe(self, drafted: bool, seconds: float, tokens: int) -> None:
        """A pass of so many seconds, drafts included."""
        if self._passes == RENEWED_PASSES:
            self._passes, self._seconds, self._tokens = 0, [0.0, 0.0], [0, 0]
        self._passes += 1
        self._seconds[drafted] += seconds
        self._tokens[drafted] += tokens

    @property
    def drafts(self) -> bool:
        """Whether the next pass may hold drafts: these are tried first."""
        if min(self._tokens) < COMPARED_TOKENS:
            return self._tokens[True] < COMPARED_TOKENS
        return self._seconds[True] * self._tokens[False] <= self._seconds[False] * self._tokens[True]


class Sharing:
    """Who shares passes of one loaded pair. `refusal` says why nobody ever does, empty where they may."""

    def __init__(self, pair: LoadedPair, capacity: Capacity, parallel: int, proof: Proof | None = None) -> None:
        """`parallel`: so many jobs run at once. `proof`: what was found when the pair was here before."""
        self._pair, self._capacity, self.refusal = pair, capacity, proof.refusal if proof else ""
        # The jobs that were to share last, seconds a token of each in the first passes that they did share, and whether
        # these were cheaper.
        self._tried, self._seconds, self._cheaper = frozenset[int](), list[float](), True
        self._compared: dict[int, Comparison] = {}
        self._batch: Batch | None = None
        network = pair.first.target.network
        try:
            if parallel > 1 and not self.refusal:
                self._batch = prove(network) if proof is None else Batch(network, proof.takes_drafts)
        except Refused as error:
            self.refusal = error.message
        # What was found out of the network.
        self.proof = Proof(self.refusal, self._batch is not None and self._batch.takes_drafts)

    def seat(self, job: Job) -> Seat:
        """A place for `job`, in no batch where its text depends on its rounds: drawn under a seed, with a fixed K."""
        request, pair = job.request, self._pair
        rule = effective_rule(request.rule, request.seed, pair.effective(request)["temperature"])
        free = pair.drafting(request).k in ("auto", 0) or request.seed is None or rule.same_noise
        return Seat(self._batch if free else None)

    def choose(self, running: Sequence[RunningJob], room_bytes: int) -> None:
        """Who shares from its next round on, in `room_bytes` beside the caches that all have alone."""
        if self._batch is None:
            return
        able = [job for job in running if job.seat.batch is not None]
        decoding = [job for job in able if job.decodes]
        # Who still reads may be done with it in its next turn, and then goes on with the others at once.
        sharing = self._fitting(able, room_bytes) if decoding else []
        if len(sharing) < 2 or not self._pays(sharing):
            sharing = []
        self._batch.expect(len(sharing))
        for job in able:
            job.seat.beside = len(running) > 1
            job.seat.wanted = job in sharing and (job not in decoding or len(decoding) > 1)

    def near(self, jobs: Sequence[RunningJob]) -> list[RunningJob]:
        """Those of `jobs` whose prompts are of about one length, the shortest first: they can be read in one pass."""
        asked = [(job, job.seat.prompt.unread) for job in jobs if job.seat.prompt is not None]
        asked.sort(key=lambda one: one[1])
        longest = 2 * asked[0][1] + MOST_PADDED
        return [job for job, unread in asked if unread <= longest][:MOST_PROMPTS]

    def read(self, jobs: Sequence[RunningJob]) -> None:
        """The prompts of `jobs`, in one pass. Raises: RuntimeError if the device fails."""
        prompts = [job.seat.prompt for job in jobs if job.seat.prompt is not None]
        for job in jobs:
            job.seat.prompt, job.waits, job.joins = None, False, True
        if len(prompts) > 1:  # a single one is read in its own turn
            read_side_by_side(prompts)

    def run(self) -> None:
        """Queue a pass of all who wait for one, unless one is. Raises: RuntimeError if the device fails."""
        if self._batch is not None:
            self._batch.run()

    def observe(self, jobs: Sequence[RunningJob], seconds: float) -> None:
        """A pass that `jobs` shared took so long, with all that the host did for it, drafts included."""
        emitted = sum(job.emitted for job in jobs)
        compared = self._compared.setdefault(len(jobs), Comparison())
        compared.observe(any(job.drafted for job in jobs), seconds, emitted)
        if self._batch is not None:
            self._batch.takes_drafts = self.proof.takes_drafts and compared.drafts
        seconds *= len(jobs) / emitted  # in which each of them has a token
        if len(self._seconds) < TRIED_PASSES and self._tried == frozenset(map(id, jobs)):
            self._seconds.append(seconds)
            if len(self._seconds) == TRIED_PASSES:
                self._cheaper = self._is_cheaper(jobs, median(self._seconds))

    def _fitting(self, jobs: Sequence[RunningJob], room_bytes: int) -> list[RunningJob]:
        """As many of `jobs` as have room side by side, the shortest first."""
        fitting = sorted(jobs, key=lambda job: most_tokens(job.handle.job, self._capacity))
        while fitting and self._bytes(fitting) > room_bytes:
            fitting.pop()
        return fitting

    def _bytes(self, jobs: Sequence[RunningJob]) -> int:
        """Of the rows of `jobs`: all are as long as the longest, and there is room for a power of two of them.

        Where drafts are taken back, rows have columns without a token.
        """
        longest = max(most_tokens(job.handle.job, self._capacity) for job in jobs) + MOST_GAPS * self.proof.takes_drafts
        return self._capacity.target_bytes(longest) << (len(jobs) - 1).bit_length()

    def _pays(self, jobs: Sequence[RunningJob]) -> bool:
        """Whether `jobs` share: they do until it was tried, and then as long as it pays, until others come or go."""
        if self._tried != (tried := frozenset(map(id, jobs))):
            self._tried, self._seconds, self._cheaper = tried, [], True
        return self._cheaper

    def _is_cheaper(self, jobs: Sequence[RunningJob], seconds: float) -> bool:
        """A shared pass of so many `seconds` than a turn of each."""
        histories = [job.seat.history for job in jobs if job.seat.history is not None]
        if not histories:
            return True
        steps = fmean(history.costs.batch_steps(len(jobs), seconds) for history in histories)
        price = fmean(history.price() for history in histories)
        return shares(steps, price * len(jobs))


def require_room(job: Job, capacity: Capacity) -> None:
    """Refuse a job before anything is allocated for it.

    Raises: TooLong for the context, TooLarge for the memory, were it to run alone.
    """
    prompt, limit = len(job.prompt), capacity.context.tokens(job.request)
    if limit is not None and prompt >= limit:
        hint = "shorten the conversation, or serve a pair with a longer context"
        raise TooLong(too_long(prompt, limit), hint)
    need = capacity.weight_bytes + job_bytes(job, capacity)
    if need > capacity.limit_bytes:
        raise TooLarge(
            too_large("models and caches", need, most_tokens(job, capacity), capacity.limit_bytes),
            f"ask for a shorter answer (max_tokens), or shorten the prompt; {capacity.relief}",
        )


def most_tokens(job: Job, capacity: Capacity) -> int:
    """Tokens that prompt and answer have at most."""
    tokens, limit = len(job.prompt) + job.request.max_tokens, capacity.context.tokens(job.request)
    return tokens if limit is None else min(tokens, limit)


def job_bytes(job: Job, capacity: Capacity) -> int:
    """Bytes of its caches once it is done."""
    return capacity.cache_bytes(most_tokens(job, capacity))


def room_beside(jobs: Sequence[Job], capacity: Capacity) -> int:
    """Bytes that are left beside the weights and all `jobs`, once they are done."""
    return capacity.limit_bytes - capacity.weight_bytes - sum(job_bytes(job, capacity) for job in jobs)
