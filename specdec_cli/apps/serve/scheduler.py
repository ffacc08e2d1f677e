"""The scheduler: jobs come in from any thread, one thread runs them, and every job taken on ends with a last event.

That thread owns the models: they are loaded, used and dropped there alone, for mlx's streams are a thread's. The jobs
that run share its time: a turn is a round or a chunk of a prompt, and goes to the job that had the least, by the
`FairClock`; or it is a target pass that several of them share (`running`).
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, replace

from specdec_cli.apps.serve.conversations import CachedConversation, Conversations
from specdec_cli.apps.serve.job import Deliver, Job, JobHandle, Queue, SchedulerStatus, unforeseen
from specdec_cli.apps.serve.running import Proof, RunningJob, Sharing, Stage, require_room, with_jobs
from specdec_cli.core.errors import SpecdecError, UsageError, reason, untrusted
from specdec_cli.core.events import Event, Failure, Finish
from specdec_cli.core.stats import ChatStats, Stats
from specdec_cli.engine import device
from specdec_cli.engine.device import clear_cache
from specdec_cli.engine.pipeline import Clock
from specdec_cli.pairs.fit import Fit
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.slot import Slot
from specdec_cli.system.machine import awake

# Longest wait for the round in flight when the scheduler closes.
CLOSING_SECONDS = 30.0
# So long nobody must have asked for anything before the machine may sleep, for what keeps it awake is a process, and
# before freed buffers go: those of conversations that gave way stay after the last answer.
IDLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """`parallel` jobs run at once and `queue` more wait. `slots` conversations are kept in `cache_bytes`.

    `cache_bytes` None is half of what the weights leave of the usable memory. After `idle_seconds` without a job the
    models are dropped; None keeps them.
    """

    parallel: int = 4
    queue: int = 16
    slots: int = 16
    cache_bytes: int | None = None
    idle_seconds: float | None = 600.0


@dataclass(slots=True)
class FairClock:
    """Seconds of service that a job which was always there should have had: whoever comes, each gets its part.

    Law: of any stretch of time a job that stays has its even part but for two turns, however many come and go
    meanwhile. It is the virtual time of fair queueing (Demers, Keshav, Shenker 1989): a second of service to one of n
    jobs moves it by 1/n, which is what each of them should have had of it. It never goes back, so that a chain of short
    jobs cannot begin below those who wait, again and again.
    """

    now: float = 0.0
    _before: float = 0.0

    def joins_at(self) -> float:
        """What a job that comes counts as having had.

        The clock as it was before the last turn: a head start of one turn.
        """
        return self._before

    def serve(self, seconds: float, jobs: int) -> None:
        """One of the `jobs` that run had a turn of so many seconds."""
        self._before, self.now = self.now, self.now + seconds / jobs


@dataclass(frozen=True, slots=True)
class Loaded:
    """The pair in memory, the conversations it holds, and who shares its passes."""

    pair: LoadedPair
    conversations: Conversations
    sharing: Sharing


class Scheduler:
    """`load` gives the pair that a job names, in the place of the one that is loaded: the first one, '', now, and again
    after every unloading; always in the scheduler's own thread.

    `holds` hears how many bytes of weights are in memory, and how many more the caches may take. Raises: what `load`
    raises now.
    """

    def __init__(
        self,
        load: Callable[[str], LoadedPair],
        options: SchedulerOptions | None = None,
        clock: Clock = time.perf_counter,
        holds: Callable[[int, int], None] = lambda weight_bytes, cache_bytes: None,
    ) -> None:
        self._holds = holds
        self.options, self._clock = options or SchedulerOptions(), clock
        self._load = load
        self._queue = Queue(self.options.queue)
        self._here: Loaded | None = None
        self._pair_name = ""
        self._jobs: tuple[RunningJob, ...] = ()
        self._fair = FairClock()
        self._unloads = False
        self._awake: ExitStack | None = None
        self._beginning: JobHandle | None = None
        self._fits: dict[str, Fit] = {}
        self._proofs: dict[str, Proof] = {}
        self._failure: SpecdecError | None = None
        self._loaded = threading.Event()
        self._totals, self._ended = ChatStats(), 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self._thread.start()
        try:
            self._loaded.wait()
            if self._failure is not None:
                raise self._failure
        except BaseException:  # a refusal, or Ctrl-C: the process must not exit while the thread computes
            self.close()
            raise

    # From any thread, without waiting.

    def submit(self, job: Job, deliver: Deliver) -> JobHandle:
        """Take `job` on: `deliver` gets its events, from another thread, the last one a Finish or a Failure.

        Raises: Busy if too many wait, TooLong if the prompt exceeds the context, DoesNotFit for the memory; what ended
        the thread that generates, if that is over.
        """
        if self._failure is not None:
            raise self._failure
        if (fit := self._fits.get(job.pair)) is not None:
            require_room(job, fit)
        handle = JobHandle(job, deliver, self._clock())
        self._queue.put(handle)
        return handle

    def status(self) -> SchedulerStatus:
        """What it is doing and has done. A job's last event comes after its sums."""
        running, here = self._running, self._here
        kept = tuple(here.conversations) if here else ()
        with self._counting:
            totals = deepcopy(self._totals)
        return SchedulerStatus(
            loaded=here is not None,
            running=running,
            waiting=self._queue.waiting(),
            conversations=len(kept),
            most_conversations=self.options.slots,
            cache_bytes=sum(one.nbytes for one in kept),
            totals=totals,
            jobs=self._ended,
            pair=self._pair_name,
            warning=with_jobs(here.pair.fit, [one.job for one in running]).scarce if here and running else "",
            sharing=sum(job.shares for job in self._jobs),
            turns=here.sharing.proof.refusal if here else "",
            idle_seconds=self._idle_seconds,
        )

    @property
    def _idle_seconds(self) -> float | None:
        return 0.0 if self._unloads else self.options.idle_seconds

    def close(self) -> None:
        """End every job and the thread; from any thread but its own."""
        self._queue.close()
        try:
            self._thread.join(CLOSING_SECONDS)
        except KeyboardInterrupt:  # a second Ctrl-C; mlx must not be destroyed while the thread runs
            self._thread.join(CLOSING_SECONDS)
            raise

    @property
    def _running(self) -> tuple[JobHandle, ...]:
        """The jobs that wait no longer; the last one may still wait for the models."""
        beginning, running = self._beginning, tuple(job.handle for job in self._jobs)
        return running if beginning is None or beginning in running else (*running, beginning)

    def _budget_bytes(self, fit: Fit) -> int:
        """Bytes that the caches of all conversations may have together."""
        if self.options.cache_bytes is not None:
            return self.options.cache_bytes
        return max((fit.limit_bytes - fit.weight_bytes) // 2, 0)

    # In the thread that owns the models.

    def _run(self) -> None:
        try:
            try:
                self._use(self._pair_name)
            except SpecdecError as error:
                self._failure = error
                self._queue.close()
            self._loaded.set()
            self._serve()
        except BaseException as error:  # noqa: BLE001 - the thread's boundary: nobody else would end its clients
            self._end_all(unforeseen(reason(error)))
        finally:
            self._loaded.set()
            self._let_sleep()
            device.leave_thread()

    def _end_all(self, failure: SpecdecError) -> None:
        """The thread cannot go on: whoever waits hears of `failure`, and so does whoever comes."""
        self._failure = failure
        self._queue.close()
        for handle in (*self._running, *self._queue.take_cancelled()):
            self._end(handle, Failure(failure.message, failure.hint, failure.exit_code))
        self._jobs, self._beginning = (), None

    def _serve(self) -> None:
        while not self._queue.closed:
            self._end_cancelled()
            self._begin()
            if self._jobs:
                self._stay_awake()
                self._work()
            else:
                self._rest()
        for handle in self._running:
            handle.cancel()
        while self._jobs:
            self._next_turn()
        self._end_cancelled()
        self._unload()

    def _work(self) -> None:
        """Turns, as long as anybody waits for one."""
        while self._jobs and not self._queue.closed:
            self._next_turn()
            self._end_cancelled()
            self._begin()

    def _stay_awake(self) -> None:
        """An agent's answer may outlast the patience of a machine that nobody touches."""
        if self._awake is None:
            self._awake = ExitStack()
            self._awake.enter_context(awake())

    def _let_sleep(self) -> None:
        if self._awake is not None:
            self._awake.close()
            self._awake = None

    def _use(self, name: str) -> Loaded:
        """The pair `name`, loaded if it is not here; one at a time. Raises: what `load` raises, in two lines."""
        if name != self._pair_name:
            self._unload()
        if self._here is None:
            with untrusted(unforeseen):
                pair, self._pair_name = self._load(name), name
                fit = self._fits[name] = pair.fit.with_more_snapshots
                pair, budget_bytes = replace(pair, fit=fit), self._budget_bytes(fit)
                conversations = Conversations(
                    self._conversation, budget_bytes, self.options.slots, fit.snapshots, self._clock
                )
                sharing = Sharing(pair, self.options.parallel, self._proofs.get(name))
                self._proofs[name] = sharing.proof
                self._here = Loaded(pair, conversations, sharing)
                self._holds(fit.weight_bytes, budget_bytes)
        return self._here

    def _conversation(self, slot: Slot | None) -> CachedConversation:
        watch = Stopwatch(self._clock)
        return CachedConversation(self._use(self._pair_name).pair.session(slot, watch), watch)

    def _begin(self) -> None:
        """Jobs that wait begin, while there is room for them; those for another pair once none runs."""
        while len(self._jobs) < self.options.parallel:
            handle = self._beginning = self._queue.take(self._may_begin)
            if handle is None:
                return
            if handle.job.only_unloads:
                self._unloads |= handle.job.pair == self._pair_name
                self._beginning = None
                self._end(handle, Finish("stop", "", (), "", Stats().to_dict()))
                continue
            try:
                with untrusted(unforeseen):
                    self._jobs = self._with(handle)
            except SpecdecError as error:
                self._beginning = None
                self._end(handle, Failure(error.message, error.hint, error.exit_code))
            self._beginning = None

    def _with(self, handle: JobHandle) -> tuple[RunningJob, ...]:
        """The jobs that run and the one of `handle`, in a conversation of its own."""
        here = self._use(handle.job.pair)
        self._unloads = handle.job.unloads
        require_room(handle.job, here.pair.fit)
        kept = here.conversations.take(handle.job)
        jobs = (*self._jobs, RunningJob(handle, kept, here.sharing.member(handle.job), self._fair.joins_at()))
        try:  # conversations that nobody uses go, as far as the jobs that run will need their memory
            room = with_jobs(here.pair.fit, [job.handle.job for job in jobs]).room_bytes
            held = sum(job.kept.nbytes for job in jobs)
            here.conversations.fit(min(self._budget_bytes(here.pair.fit), max(room, 0) + held))
        except BaseException:
            here.conversations.discard(kept)
            raise
        return jobs

    def _may_begin(self, handle: JobHandle) -> bool:
        """Whether its pair is loaded, there is room for its caches too, and no job that runs reads the same text.

        A job that shares most of its prompt with one that is being read waits for that: then it reads the rest alone.
        """
        if not self._jobs or self._here is None:
            return True
        jobs = [*(job.handle.job for job in self._jobs), handle.job]
        fits = handle.job.pair == self._pair_name and with_jobs(self._here.pair.fit, jobs).fits
        return fits and not any(job.reads_for(handle.job) for job in self._jobs)

    def _next_turn(self) -> None:
        """A turn of the job that had the least time; the newest goes first among equals, and whoever left before all.

        If it asks for a pass that others share, all of those who are about to ask go first. No name of this thread's
        loop may hold a job: its models could not be dropped.
        """
        here = self._use(self._pair_name)
        here.sharing.choose(self._jobs, with_jobs(here.pair.fit, [job.handle.job for job in self._jobs]).room_bytes)
        job = min(reversed(self._jobs), key=lambda job: (not job.handle.cancelled, job.had_seconds))
        if (ask := job.asks) is None or job.handle.cancelled:
            self._turn(here.sharing, job)
        elif late := [one for one in self._jobs if one.is_late(ask)]:
            self._turn(here.sharing, late[0])
        else:
            self._share(here.sharing, here.sharing.together(self._jobs, ask))

    def _turn(self, sharing: Sharing, job: RunningJob) -> None:
        running, decodes = len(self._jobs), job.stage is Stage.DECODES
        self._hand_on(job, alone=running == 1)
        job.had_seconds += job.last_seconds
        self._fair.serve(job.last_seconds, running)
        if decodes and not job.shares:
            sharing.observe_turn(job)

    def _share(self, sharing: Sharing, jobs: Sequence[RunningJob]) -> None:
        """What `jobs` ask for in one pass, whose time they share, and what each says by it."""
        running, began = len(self._jobs), self._clock()
        with ExitStack() as watches:
            for job in jobs:
                watches.enter_context(job.kept.watch)
            for job in sharing.answer(jobs):
                self._hand_on(job, alone=False)
        seconds = self._clock() - began
        for job in jobs:
            job.had_seconds += seconds / len(jobs)
        self._fair.serve(seconds, running)
        sharing.observe(jobs, seconds)

    def _hand_on(self, job: RunningJob, alone: bool) -> None:
        """The events of a turn of `job`, to its client."""
        for event in job.turn(alone):
            if isinstance(event, Finish | Failure):
                self._jobs = tuple(other for other in self._jobs if other is not job)
                self._give_back(job.kept, broken=isinstance(event, Failure) and event.exit_code != UsageError.exit_code)
                self._end(job.handle, event)
            else:
                self._notify(job.handle, event)

    def _give_back(self, kept: CachedConversation, broken: bool) -> None:
        """The conversation of a job that is done; what a failure may have left in it is forgotten."""
        conversations = self._use(self._pair_name).conversations
        try:
            with untrusted(unforeseen):
                if broken:
                    kept.slot.forget()
                conversations.give_back(kept)
        except SpecdecError:
            conversations.discard(kept)

    def _end(self, handle: JobHandle, event: Finish | Failure) -> None:
        self._ended += 1
        self._queue.note_seconds(self._clock() - handle.came_at)
        self._notify(handle, event)

    def _notify(self, handle: JobHandle, event: Event) -> None:
        with self._counting:
            self._totals.fold(event)
        handle.notify(event)

    def _end_cancelled(self) -> None:
        for handle in self._queue.take_cancelled():
            handle.cancel()
            self._end(handle, Finish("interrupted", "", (), "", Stats().to_dict()))

    def _rest(self) -> None:
        """Until a job comes. Meanwhile the machine may sleep, freed buffers are given back, and the models dropped."""
        acts: list[tuple[float, Callable[[], object]]] = [(IDLE_SECONDS, self._let_sleep)]
        if self._here is not None:
            acts.append((IDLE_SECONDS, clear_cache))
            if self._idle_seconds is not None:
                acts.append((self._idle_seconds, self._unload))
        waited = 0.0
        for seconds, act in sorted(acts, key=lambda one: one[0]):
            if self._queue.wait(seconds - waited):
                return
            waited = seconds
            act()
        self._queue.wait(None)

    def _unload(self) -> None:
        """Drop the models. What was read by them is on disk before, where it is kept at all."""
        if self._here and (disk := self._here.pair.disk):
            with suppress(SpecdecError), untrusted(unforeseen):
                self._here.conversations.keep(disk.most_bytes)
                disk.finish()
        self._here = None
        gc.collect()
        clear_cache()
        self._holds(0, 0)
