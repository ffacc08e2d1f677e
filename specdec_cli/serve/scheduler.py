"""The scheduler: jobs come in from any thread, one thread runs them, and every job taken on ends with a last event.

That thread owns the models: they are loaded, used and dropped there alone, for mlx's streams are a thread's. The jobs
that run share its time: a turn is a round or a chunk of a prompt, and goes to the job that had the least.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specdec_cli.engine import device
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.device import clear_cache
from specdec_cli.engine.pipeline import Clock
from specdec_cli.errors import SpecdecError, UsageError, untrusted
from specdec_cli.events import Event, Failure, Finish, Reading, RoundDone
from specdec_cli.serve.conversations import Conversation, Conversations
from specdec_cli.serve.disk import Folder
from specdec_cli.serve.job import Deliver, Job, job_bytes, require_room, room_beside
from specdec_cli.serve.queue import JobHandle, Queue, unforeseen
from specdec_cli.serve.status import ConversationStatus, Health, SchedulerStatus, Totals
from specdec_cli.session.capacity import Capacity, capacity_of
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.signals import IDLE_SECONDS
from specdec_cli.session.slot import Slot
from specdec_cli.stats import ChatStats, Stats

# Longest wait for the round in flight when the scheduler closes.
CLOSING_SECONDS = 30.0
# Longest time to write conversations when the server ends: less than whoever ended it is sure to wait.
ENDING_SECONDS = 6.0
# So long nobody must have asked for anything before conversations are written.
PAUSE_SECONDS = 2.0
# While other jobs run, a chunk of a prompt takes about so long, and at first has so many tokens.
SHARED_CHUNK_SECONDS, FIRST_CHUNK_TOKENS, LEAST_CHUNK_TOKENS = 0.5, 256, 64


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """`parallel` jobs run at once and `queue` more wait. `slots` conversations are kept in `cache_bytes`.

    `cache_bytes` None is half of what the weights leave of the usable memory. After `idle_seconds` without a job the
    models are dropped; None keeps them. `usable_bytes` None is what the device says.
    """

    parallel: int = 2
    queue: int = 16
    slots: int = 16
    cache_bytes: int | None = None
    idle_seconds: float | None = 600.0
    usable_bytes: int | None = None


class RunningJob:
    """A job in its conversation. It `had_seconds` of turns, `last_seconds` in the last one."""

    def __init__(self, handle: JobHandle, kept: Conversation, had_seconds: float = 0.0) -> None:
        self.handle, self.kept, self.had_seconds, self.last_seconds = handle, kept, had_seconds, 0.0
        self._chunk_tokens, self._read_tokens = FIRST_CHUNK_TOKENS, 0
        job = handle.job
        self._events: Iterator[Event] = kept.session.reply(
            job.prompt, job.request, lambda: handle.cancelled, raw=job.raw
        )

    def reads_for(self, job: Job) -> bool:
        """Whether it is reading most of what `job` has to read."""
        if self.handle.is_read:
            return False
        shared = common_prefix(self.handle.job.prompt, job.prompt)
        return 2 * shared > len(job.prompt) and shared > self.kept.length

    def turn(self, alone: bool = True) -> Iterator[Event]:
        """The events of one turn; the last turn's last one is a Finish or a Failure. It is short unless `alone`.

        Whatever happens in a turn, the job's client hears of it, and the thread lives on.
        """
        self.kept.slot.target.most_chunk_tokens = None if alone else self._chunk_tokens
        began = self.kept.watch()
        try:
            with untrusted(unforeseen):
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


class Scheduler:
    """`load` gives the pair, now and again after every unloading, always in the scheduler's own thread.

    `switch` gives the pair that a job names, in the place of the one that is loaded. Conversations outlive the models,
    and the server, in `folder`. Raises: what `load` raises now.
    """

    def __init__(
        self,
        load: Callable[[], LoadedPair],
        options: SchedulerOptions | None = None,
        clock: Clock = time.perf_counter,
        folder: Folder | None = None,
        switch: Callable[[str], LoadedPair] | None = None,
    ) -> None:
        self.options, self._clock, self._folder = options or SchedulerOptions(), clock, folder
        self._load_first, self._switch = load, switch
        self._queue = Queue(self.options.queue)
        self._pair: LoadedPair | None = None
        self._pair_name = ""
        self._conversations: Conversations | None = None
        self._jobs: tuple[RunningJob, ...] = ()
        self._beginning: JobHandle | None = None
        self._capacity: Capacity | None = None
        self._capacities: dict[str, Capacity] = {}
        self._failure: SpecdecError | None = None
        self._loaded = threading.Event()
        self._hurried = False
        self._totals, self._ended, self._failed, self._cancelled = ChatStats(), 0, 0, 0
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)
        self._thread.start()
        self._loaded.wait()
        if self._failure is not None:
            raise self._failure

    # From any thread, without waiting.

    def submit(self, job: Job, deliver: Deliver) -> JobHandle:
        """Take `job` on: `deliver` gets its events, from another thread, the last one a Finish or a Failure.

        Raises: Busy if too many wait, TooLong if the prompt exceeds the context, TooLarge for the memory.
        """
        if (capacity := self._capacities.get(job.pair)) is not None:
            require_room(job, capacity)
        handle = JobHandle(job, deliver, self._clock())
        self._queue.put(handle)
        return handle

    def health(self) -> Health:
        """How busy it is."""
        running, waiting = self._running, self._queue.waiting()
        endpoints = tuple(handle.job.endpoint for handle in [*running, *waiting])
        loaded = self._pair is not None
        return Health(len(running), len(waiting), self.options.slots, loaded, endpoints, self._pair_name)

    def status(self) -> SchedulerStatus:
        """What it is doing and has done. A job's last event comes after its sums."""
        now, running, capacity = self._clock(), self._running, self._capacity
        conversations = tuple(
            ConversationStatus(
                tokens=one.length,
                # Caches in use no other thread may look at, so their bytes are computed.
                nbytes=capacity.cache_bytes(one.length) if one.busy and capacity else one.nbytes,
                idle_seconds=now - one.used_at,
                busy=one.busy,
                conversation_id=one.conversation_id,
                prefix_only=one.prefix_only,
            )
            for one in self._conversations or ()
        )
        warned = capacity.warning(sum(job_bytes(one.job, capacity) for one in running)) if capacity and running else ""
        return SchedulerStatus(
            loaded=self._pair is not None,
            running=tuple(handle.status(0, now) for handle in running),
            waiting=tuple(handle.status(place, now) for place, handle in enumerate(self._queue.waiting())),
            conversations=conversations,
            most_conversations=self.options.slots,
            cache_bytes=sum(one.nbytes for one in conversations),
            budget_bytes=self._budget_bytes,
            totals=Totals.of(self._totals, self._ended, self._failed, self._cancelled),
            pair=self._pair_name,
            warning=warned,
        )

    def close(self) -> None:
        """End every job and the thread; from any thread but its own."""
        self._queue.close()
        try:
            self._thread.join(CLOSING_SECONDS)
        except KeyboardInterrupt:  # a second Ctrl-C: conversations that are not written yet are not waited for
            self._hurried = True
            self._thread.join(CLOSING_SECONDS)
            raise

    @property
    def _running(self) -> tuple[JobHandle, ...]:
        """The jobs that wait no longer; the last one may still wait for the models."""
        beginning, running = self._beginning, tuple(job.handle for job in self._jobs)
        return running if beginning is None or beginning in running else (*running, beginning)

    @property
    def _budget_bytes(self) -> int:
        """Bytes that the caches of all conversations may have together."""
        if self.options.cache_bytes is not None or self._capacity is None:
            return self.options.cache_bytes or 0
        return max((self._capacity.limit_bytes - self._capacity.weight_bytes) // 2, 0)

    # In the thread that owns the models.

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            device.leave_thread()

    def _serve(self) -> None:
        try:
            self._use(self._pair_name)
        except SpecdecError as error:
            self._failure = error
            self._queue.close()
        self._loaded.set()
        while not self._queue.closed:
            self._end_cancelled()
            self._begin()
            if self._jobs:
                self._next_turn()
            else:
                self._rest()
        for handle in self._running:
            handle.cancel()
        while self._jobs:
            self._next_turn()
        self._end_cancelled()
        self._save(before=self._clock() + ENDING_SECONDS)
        self._unload()

    def _use(self, name: str) -> LoadedPair:
        """The pair `name`, loaded if it is not here; one at a time. Raises: what `load` raises, in two lines."""
        if name != self._pair_name:
            self._save(before=self._clock() + ENDING_SECONDS)
            self._unload()
        if self._pair is None:
            with untrusted(unforeseen):
                pair = self._switch(name) if self._switch and name else self._load_first()
                self._pair_name = name
                capacity = self._capacity = self._capacities[name] = capacity_of(pair, self.options.usable_bytes)
                folder = self._folder if pair.fingerprint else None
                if folder is not None:
                    folder.index(pair.fingerprint, self._budget_bytes)
                self._conversations = Conversations(
                    self._conversation,
                    self._budget_bytes,
                    self.options.slots,
                    capacity.snapshots,
                    self._clock,
                    folder,
                    self._next_turn,
                )
                self._pair = pair
        return self._pair

    def _conversation(self, slot: Slot | None) -> Conversation:
        watch = Stopwatch(self._clock)
        return Conversation(self._use(self._pair_name).session(slot, watch), watch)

    def _begin(self) -> None:
        """Jobs that wait begin, while there is room for them; those for the loaded pair while any of its jobs runs."""
        while len(self._jobs) < self.options.parallel:
            loaded = None if self._pair is None else self._pair_name
            handle = self._queue.take(self._may_begin, loaded, busy=bool(self._jobs))
            if handle is None:
                return
            self._beginning = handle
            try:
                with untrusted(unforeseen):
                    self._jobs = self._with(handle)
            except SpecdecError as error:
                self._beginning = None
                self._end(handle, Failure(error.message, error.hint, error.exit_code))
            self._beginning = None

    def _with(self, handle: JobHandle) -> tuple[RunningJob, ...]:
        """The jobs that run and the one of `handle`, in a conversation of its own."""
        self._use(handle.job.pair)
        assert self._conversations is not None and self._capacity is not None
        require_room(handle.job, self._capacity)
        kept = self._conversations.take(handle.job)
        # As if it had waited since the others' last turns began: whoever had a long one waits as long for the next.
        had = min((job.had_seconds - job.last_seconds for job in self._jobs), default=0.0)
        jobs = (*self._jobs, RunningJob(handle, kept, had))
        try:  # conversations that nobody uses go, as far as the jobs that run will need their memory
            room = room_beside([job.handle.job for job in jobs], self._capacity)
            held = sum(job.kept.nbytes for job in jobs)
            self._conversations.fit(min(self._budget_bytes, max(room, 0) + held))
        except BaseException:
            self._conversations.discard(kept)
            raise
        return jobs

    def _may_begin(self, handle: JobHandle) -> bool:
        """Whether its caches fit beside those of the jobs that run, and none of them is reading the same text now.

        A job that shares most of its prompt with one that is being read waits for that: then it reads the rest alone.
        """
        jobs = [job.handle.job for job in self._jobs]
        fits = self._capacity is None or room_beside([*jobs, handle.job], self._capacity) >= 0 or not jobs
        return fits and not any(job.reads_for(handle.job) for job in self._jobs)

    def _next_turn(self) -> None:
        """A turn of the job that had the least time; the newest goes first among equals, and whoever left before all.

        No name of this thread's loop may hold a job: its models could not be dropped.
        """
        if self._jobs:
            self._turn(min(reversed(self._jobs), key=lambda job: (not job.handle.cancelled, job.had_seconds)))

    def _turn(self, job: RunningJob) -> None:
        for event in job.turn(alone=len(self._jobs) == 1):
            if isinstance(event, Finish | Failure):
                self._jobs = tuple(other for other in self._jobs if other is not job)
                self._give_back(job.kept, broken=isinstance(event, Failure) and event.exit_code != UsageError.exit_code)
                self._end(job.handle, event)
            else:
                self._notify(job.handle, event)

    def _give_back(self, kept: Conversation, broken: bool) -> None:
        """The conversation of a job that is done; what a failure may have left in it is forgotten."""
        assert self._conversations is not None
        try:
            with untrusted(unforeseen):
                if broken:
                    kept.slot.forget()
                self._conversations.give_back(kept)
        except SpecdecError:
            self._conversations.discard(kept)

    def _end(self, handle: JobHandle, event: Finish | Failure) -> None:
        self._ended += 1
        self._failed += isinstance(event, Failure)
        self._cancelled += handle.cancelled
        self._queue.note_seconds(self._clock() - handle.came_at)
        self._notify(handle, event)

    def _notify(self, handle: JobHandle, event: Event) -> None:
        self._totals.fold(event)
        handle.notify(event, self._clock())

    def _end_cancelled(self) -> None:
        for handle in self._queue.take_cancelled():
            handle.cancel()
            self._end(handle, Finish("interrupted", "", (), "", Stats().to_dict()))

    def _rest(self) -> None:
        """Until a job comes. Meanwhile conversations are written, the memory is no longer wired, the models dropped."""
        waited = 0.0
        for seconds, act in sorted(self._pastimes(), key=lambda pastime: pastime[0]):
            if self._queue.wait(seconds - waited):
                return
            waited = seconds
            act()
        self._queue.wait(None)

    def _pastimes(self) -> Iterator[tuple[float, Callable[[], object]]]:
        """(seconds without a job, what is done then)."""
        if self._pair is None:
            return
        if self._folder is not None:
            yield max(PAUSE_SECONDS, self._folder.next_at - self._clock()), self._save
        yield IDLE_SECONDS, self._pair.residency.release
        if self.options.idle_seconds is not None:
            yield self.options.idle_seconds, self._unload_idle

    def _save(self, before: float | None = None) -> bool:
        """Write what is not in the folder, until a job comes or it is `before`; whether all of it is written."""
        if self._conversations is None:
            return True
        if before is None:
            return self._conversations.save(lambda: self._queue.wait(0))
        return self._conversations.save(lambda: self._hurried or self._clock() > before)

    def _unload_idle(self) -> None:
        if self._save():
            self._unload()

    def _unload(self) -> None:
        self._conversations = self._pair = None
        gc.collect()
        clear_cache()
