"""The jobs that run: a job's turn, and the target passes that several share.

A job decodes alone while it is the only one. From two on they take turns, each with its drafts, or share passes, with
drafts in them or without: whatever gives each of them its next token sooner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from specdec_cli.apps.serve.conversations import CachedConversation
from specdec_cli.apps.serve.job import Job, JobHandle, TooLong, unforeseen
from specdec_cli.core.errors import DoesNotFit, Refused, SpecdecError, untrusted
from specdec_cli.core.events import Event, Failure, Finish, Prefill, Reading, RoundDone
from specdec_cli.core.kinds import effective_rule
from specdec_cli.engine.batch import Ask, Batch, Member, Part, Prompt, prove
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.cache.rows import MOST_GAPS
from specdec_cli.engine.drafters.base import DraftStep
from specdec_cli.engine.model import CachedModel, Network
from specdec_cli.pairs.fit import Fit
from specdec_cli.pairs.limits import too_long
from specdec_cli.session.session import LoadedPair

# While other jobs run, a chunk of a prompt takes about so long, and at first has so many tokens.
SHARED_CHUNK_SECONDS, FIRST_CHUNK_TOKENS, LEAST_CHUNK_TOKENS = 0.5, 256, 64
# Tokens out of each of two ways after which it is known for so many jobs which takes less time a token; fewer are tried
# in turns, which seldom win. That is asked again after 128 passes, and half as often while the same wins, up to 1,024.
COMPARED_TOKENS, TURN_TOKENS, RENEWED_PASSES, MOST_PASSES = 24, 12, 128, 1024
# Prompts that are read in one pass, and by how much the longest may exceed twice the shortest one.
MOST_PROMPTS, MOST_PADDED = 8, 16


class Stage(Enum):
    """How far a job is: it had no turn yet, its prompt is read, its answer is decoded."""

    NEW = auto()
    READS = auto()
    DECODES = auto()


class RunningJob:
    """A job in its conversation. It `had_seconds` of turns, `last_seconds` in the last one. The round of that `emitted`
    so many tokens, and `drafted` or not.

    `member` is its place in shared passes, None where it never shares any. Its next turn comes once it was given what
    it `asks` for, if that is anything, or with the `error` by which that failed.
    """

    def __init__(
        self, handle: JobHandle, kept: CachedConversation, member: Member | None, had_seconds: float = 0.0
    ) -> None:
        self.handle, self.kept, self.had_seconds, self.last_seconds = handle, kept, had_seconds, 0.0
        self.member, self.stage = member, Stage.NEW
        self.asks: Ask | None = None
        self.error: Exception | None = None
        self.emitted, self.drafted = 0, False
        self._chunk_tokens, self._read_tokens = FIRST_CHUNK_TOKENS, 0
        job = handle.job
        most = most_tokens(job, kept.session.pair.fit) - len(job.prompt)
        self._events: Generator[Event | Ask] = kept.session.steps(
            job.prompt, replace(job.request, max_tokens=most), lambda: handle.cancelled, job.raw, member
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
        return self.member is not None and self.member.shares

    def is_late(self, ask: Ask) -> bool:
        """Whether it is about to ask for the like of `ask`: a round is soon done, a long reading is not."""
        if isinstance(ask, Prompt):
            return self.stage is Stage.NEW
        about = self.shares and self.stage is Stage.DECODES
        return about and self.asks is None and self.handle.reading is None

    def turn(self, alone: bool = True) -> Iterator[Event]:
        """The events of one turn: up to what it `asks` for, a chunk of its prompt, or a round if it shares no passes.
        The last turn's last one is a Finish or a Failure.

        It is short unless `alone`. Whatever happens in a turn, the job's client hears of it, and the thread lives on.
        """
        self.asks, self.stage, self.emitted = None, Stage.READS if self.stage is Stage.NEW else self.stage, 0
        self.kept.slot.target.most_chunk_tokens = None if alone else self._chunk_tokens
        began = self.kept.watch()
        try:
            with untrusted(unforeseen):
                while self.asks is None:
                    with self.kept.watch:
                        event = next(self._events) if self.error is None else self._events.throw(self.error)
                    self.last_seconds = self.kept.watch() - began
                    match event:
                        case Prompt() if alone:
                            continue
                        case Prompt() | DraftStep() | Part():
                            self.asks = event
                            continue
                        case Reading(reader="target"):
                            self._measure_chunk(event)
                        case Prefill():
                            self.stage = Stage.DECODES
                        case RoundDone():
                            self.emitted, self.drafted = len(event.round.emitted), bool(event.round.draft)
                    yield event
                    if isinstance(event, Reading | Finish) or (isinstance(event, RoundDone) and not self.shares):
                        break
        except SpecdecError as error:
            yield Failure(error.message, error.hint, error.exit_code)

    def _measure_chunk(self, event: Reading) -> None:
        """The next chunk while others run: as many tokens, a power of two, as were read in the time it may take."""
        tokens, self._read_tokens = event.read_tokens - self._read_tokens, event.read_tokens
        if tokens < event.read_tokens and self.last_seconds:  # of the first chunk it is not known where it began
            within = int(tokens / self.last_seconds * SHARED_CHUNK_SECONDS)
            self._chunk_tokens = max(1 << within.bit_length() >> 1, LEAST_CHUNK_TOKENS)


@dataclass(frozen=True, slots=True)
class Proof:
    """Why requests for a pair never share passes, empty where they may; whether these may hold drafts, and whether the
    steps of these are shared.
    """

    refusal: str = ""
    takes_drafts: bool = False
    shares_steps: bool = False

    @classmethod
    def of(cls, network: Network, draft: Network | None) -> Proof:
        """What `prove` finds of a target's `network` and its `draft` model."""
        try:
            batch = prove(network, draft)
            return cls("", batch.takes_drafts, batch.drafts is not None)
        except Refused as error:
            return cls(error.message)


class Comparison:
    """Two ways for as many jobs, measured: costs of a job alone foretell those of several badly. One is tried first."""

    def __init__(self, other_tokens: int = COMPARED_TOKENS) -> None:
        """`other_tokens` tell what the other way takes."""
        self._other_tokens = other_tokens
        self._passes, self._seconds, self._tokens = 0, [0.0, 0.0], [0, 0]
        self._renewed_passes = RENEWED_PASSES
        self._won_before: bool | None = None

    def observe(self, first: bool, seconds: float, tokens: int) -> None:
        """A pass of so many seconds, all that it took included, by the way that is tried `first` or by the other."""
        if self._passes >= self._renewed_passes:
            same = self._won_before in (None, self.won)
            self._renewed_passes = min(2 * self._renewed_passes, MOST_PASSES) if same else RENEWED_PASSES
            self._won_before = self.won
            self._passes, self._seconds, self._tokens = 0, [0.0, 0.0], [0, 0]
        self._passes += 1
        self._seconds[first] += seconds
        self._tokens[first] += tokens

    @property
    def takes_first(self) -> bool:
        """Whether the next pass is of the way that is tried first."""
        return self._tokens[True] < COMPARED_TOKENS or self.won

    @property
    def won(self) -> bool:
        """Whether the way that is tried first is known to take less time a token."""
        known = self._tokens[True] >= COMPARED_TOKENS and self._tokens[False] >= self._other_tokens
        return known and self._seconds[True] * self._tokens[False] <= self._seconds[False] * self._tokens[True]


class Sharing:
    """Who shares passes of one loaded pair."""

    def __init__(self, pair: LoadedPair, parallel: int, proof: Proof | None = None) -> None:
        """`parallel`: so many jobs run at once. `proof`: what was found when the pair was here before."""
        self._pair = pair
        # By the number of jobs: shared passes against turns, and drafts in shared passes against none.
        self._sharing = defaultdict[int, Comparison](lambda: Comparison(TURN_TOKENS))
        self._drafts = defaultdict[int, Comparison](Comparison)
        # The jobs of the last shared pass, and how many take turns that could share.
        self._shared, self._in_turns = frozenset[int](), 0
        self._batch: Batch | None = None
        # Of what the last pass was, and the seconds of the drafts of the next one.
        self._answered: type[Ask] = Part
        self._drafting_seconds = 0.0
        network, model = pair.first.target.network, pair.first.draft
        draft = model.network if isinstance(model, CachedModel) else None
        self.proof = proof or (Proof.of(network, draft) if parallel > 1 else Proof())
        if parallel > 1 and not self.proof.refusal:
            self._batch = Batch(network, self.proof.takes_drafts, draft if self.proof.shares_steps else None)

    def member(self, job: Job) -> Member | None:
        """The place of `job`: none where its text depends on its rounds, being drawn under a seed with a fixed K."""
        request, pair = job.request, self._pair
        rule = effective_rule(request.rule, request.seed, pair.effective(request)["temperature"])
        free = pair.drafting(request).k in ("auto", 0) or request.seed is None or rule.same_noise
        return Member(self._batch) if free and self._batch else None

    def choose(self, running: Sequence[RunningJob], room_bytes: int) -> None:
        """Who shares from its next round on; `room_bytes` are left by the caches that all have alone."""
        if self._batch is None:
            return
        able = [job for job in running if job.member]
        decoding = [job for job in able if job.stage is Stage.DECODES]
        # Who still reads may be done with it in its next turn, and then goes on with the others at once.
        sharing = self._fitting(able, room_bytes) if decoding else []
        count = sum(job in decoding for job in sharing)
        # One who decodes and one who reads share none yet: of so many no passes are compared.
        together = len(sharing) > 1 and (count < 2 or self._sharing[count].takes_first)
        self._in_turns = 0 if together else count
        if not together:
            sharing, self._shared = [], frozenset()
        self._batch.expect(len(sharing))
        for job in running:
            if job.member:
                job.member.shares = job in sharing and (job not in decoding or len(decoding) > 1)

    def together(self, running: Sequence[RunningJob], ask: Ask) -> list[RunningJob]:
        """Those who are answered in one pass, with whoever asks `ask`; a step of a draft comes before all parts.

        Of prompts those of about one length, the shortest first.
        """
        if isinstance(ask, Prompt):
            asking = [(job, job.asks.unread) for job in running if isinstance(job.asks, Prompt)]
            asking.sort(key=lambda one: one[1])
            longest = 2 * asking[0][1] + MOST_PADDED
            return [job for job, unread in asking if unread <= longest][:MOST_PROMPTS]
        drafting = [job for job in running if isinstance(job.asks, DraftStep)]
        return drafting or [job for job in running if isinstance(job.asks, Part)]

    def answer(self, jobs: Sequence[RunningJob]) -> list[RunningJob]:
        """What `jobs` ask for, in one pass. Returns those that had a part of a pass, or failed by it."""
        assert self._batch is not None
        asks = {job: job.asks for job in jobs if job.asks}
        errors = self._batch.answer([*asks.values()])
        served = [job for job, ask in asks.items() if ask in errors]
        for job in served:
            job.asks, job.error = None, errors[asks[job]]
            if isinstance(asks[job], Prompt):
                job.stage = Stage.DECODES
        self._answered = type(asks[jobs[0]])
        return served if self._answered is Part else []

    def observe(self, jobs: Sequence[RunningJob], seconds: float) -> None:
        """What `jobs` shared last took so long, with all that the host did for it."""
        if self._answered is not Part:
            self._drafting_seconds += seconds * (self._answered is DraftStep)
            return
        seconds, self._drafting_seconds = seconds + self._drafting_seconds, 0.0
        emitted, drafted = sum(job.emitted for job in jobs), any(job.drafted for job in jobs)
        compared, before, self._shared = self._drafts[len(jobs)], self._shared, frozenset(map(id, jobs))
        compared.observe(drafted, seconds, emitted)
        if self._batch is not None:
            self._batch.takes_drafts = self.proof.takes_drafts and compared.takes_first
        # Drafts that are tried and lose are no reason to take turns, nor is a first pass, which copies caches.
        if drafted == compared.won and before == self._shared:
            self._sharing[len(jobs)].observe(True, seconds, emitted)

    def observe_turn(self, job: RunningJob) -> None:
        """A round of `job`, which could have shared it."""
        if job.member and job.emitted and self._in_turns > 1:
            self._sharing[self._in_turns].observe(False, job.last_seconds, job.emitted)

    def _fitting(self, jobs: Sequence[RunningJob], room_bytes: int) -> list[RunningJob]:
        """As many of `jobs` as have room side by side, the shortest first."""
        fitting = sorted(jobs, key=self._tokens)
        while fitting and self._bytes(fitting) > room_bytes:
            fitting.pop()
        return fitting

    def _bytes(self, jobs: Sequence[RunningJob]) -> int:
        """Of the rows of `jobs`: all are as long as the longest, and there is room for a power of two of them.

        Where drafts are taken back, rows have columns without a token.
        """
        longest = max(map(self._tokens, jobs)) + MOST_GAPS * self.proof.takes_drafts
        parts = self._pair.fit.sizes(longest)[: 1 + self.proof.shares_steps]
        return sum(part.row_bytes for part in parts) << (len(jobs) - 1).bit_length()

    def _tokens(self, job: RunningJob) -> int:
        return most_tokens(job.handle.job, self._pair.fit)


def require_room(job: Job, fit: Fit) -> None:
    """Refuse a job before anything is allocated for it.

    Raises: TooLong for the context, DoesNotFit for the memory, were it to run alone. Nothing is refused for the memory
    where not even the models fit: whoever loaded them was told, and wants them all the same.
    """
    prompt, limit = len(job.prompt), fit.context.tokens(job.request)
    if limit is not None and prompt >= limit:
        hint = "shorten the conversation, or serve a pair with a longer context"
        raise TooLong(too_long(prompt, limit), hint)
    if fit.at(0).fits and not (alone := with_jobs(fit, [job])).fits:
        hint = f"ask for a shorter answer (max_tokens), or shorten the prompt; {fit.relief}"
        raise DoesNotFit(alone.shortage("models and caches"), hint)


def most_tokens(job: Job, fit: Fit) -> int:
    """Tokens that prompt and answer have at most; what nobody asked for is no more than the memory holds."""
    prompt = len(job.prompt)
    most, memory = fit.context.most(prompt, job.request), fit.memory_tokens if job.open_ended else None
    return most if memory is None else min(most, max(memory, prompt + 1))


def with_jobs(fit: Fit, jobs: Sequence[Job]) -> Fit:
    """The pair with the caches of all `jobs`, once these are done."""
    return fit.at(*(most_tokens(job, fit) for job in jobs))
