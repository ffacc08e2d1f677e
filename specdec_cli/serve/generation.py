"""The thread that owns the models. Law: they are loaded, used and dropped here alone, for mlx's streams are a thread's.

The jobs that run share its time: a turn is a round or a chunk of a prompt, and goes to the job that had the least.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

from specdec_cli.engine import device
from specdec_cli.engine.memory import clear_cache
from specdec_cli.engine.pipeline import Clock
from specdec_cli.errors import SpecdecError, UsageError, untrusted
from specdec_cli.events import Event, Failure, Finish
from specdec_cli.serve.admission import job_bytes, require_room, room_beside
from specdec_cli.serve.folder import Folder
from specdec_cli.serve.keeping import Keeper
from specdec_cli.serve.options import DeskOptions
from specdec_cli.serve.queue import Queue
from specdec_cli.serve.slots import Kept, Slots
from specdec_cli.serve.work import Taken, Work, failure_of
from specdec_cli.session.capacity import Capacity, capacity_of
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import LoadedPair
from specdec_cli.session.signals import IDLE_SECONDS
from specdec_cli.session.slot import Slot
from specdec_cli.stats import ChatStats, Stats

# Longest time to write conversations when the server ends: less than whoever ended it is sure to wait.
ENDING_SECONDS = 6.0


class Generation:
    """Runs `queue`'s jobs until it is closed. `opened` is set once the models were loaded, or could not be.

    Conversations outlive it in `folder`; `hurried`: it ends without writing more of them.
    """

    def __init__(
        self,
        load: Callable[[str], LoadedPair],
        queue: Queue,
        options: DeskOptions,
        clock: Clock,
        folder: Folder | None = None,
    ) -> None:
        self._load, self._queue, self._options, self._clock = load, queue, options, clock
        self._folder, self._keeper = folder, Keeper(folder, clock) if folder else None
        self._pair: LoadedPair | None = None
        self.slots: Slots | None = None
        self.works: tuple[Work, ...] = ()
        self._beginning: Taken | None = None
        self.pair_name = ""
        self.capacity: Capacity | None = None
        self.capacities: dict[str, Capacity] = {}
        self.failure: SpecdecError | None = None
        self.opened = threading.Event()
        self.hurried = False
        self.totals, self.jobs, self.failed, self.cancelled = ChatStats(), 0, 0, 0

    @property
    def loaded(self) -> bool:
        """Whether the models are in memory."""
        return self._pair is not None

    @property
    def running(self) -> tuple[Taken, ...]:
        """The jobs that wait no longer; the last one may still wait for the models."""
        beginning, running = self._beginning, tuple(work.taken for work in self.works)
        return running if beginning is None or beginning in running else (*running, beginning)

    def run(self) -> None:
        """The thread."""
        try:
            self._run()
        finally:
            device.leave_thread()

    def _run(self) -> None:
        try:
            self._open(self.pair_name)
        except SpecdecError as error:
            self.failure = error
            self._queue.close()
        self.opened.set()
        while not self._queue.closed:
            self._end_cancelled()
            self._begin()
            if self.works:
                self._next_turn()
            else:
                self._rest()
        for taken in self.running:
            taken.cancel()
        while self.works:
            self._next_turn()
        self._end_cancelled()
        self._write(before=self._clock() + ENDING_SECONDS)
        self._unload()

    def _open(self, name: str) -> LoadedPair:
        """The pair `name`, loaded if it is not here; one at a time. Raises: what `load` raises, in two lines."""
        if name != self.pair_name:
            self._write(before=self._clock() + ENDING_SECONDS)
            self._unload()
        if self._pair is None:
            with untrusted(failure_of):
                pair = self._load(name)
                self.pair_name = name
                self.capacity = self.capacities[name] = capacity_of(pair, self._options.usable_bytes)
                most, kept = self._options.slots, self.capacity.snapshots
                folder = self._folder if pair.fingerprint else None
                if folder is not None:
                    folder.index(pair.fingerprint, self.budget_bytes)
                self.slots = Slots(self._kept, self.budget_bytes, most, kept, self._clock, folder, self._next_turn)
                self._pair = pair
        return self._pair

    @property
    def budget_bytes(self) -> int:
        """Bytes that the caches of all conversations may have together."""
        if self._options.cache_bytes is not None or self.capacity is None:
            return self._options.cache_bytes or 0
        return max((self.capacity.limit_bytes - self.capacity.weight_bytes) // 2, 0)

    def bytes_of(self, kept: Kept) -> int:
        """Of its caches; from any thread, so those in use, which no other thread may look at, are computed."""
        return self.capacity.cache_bytes(kept.length) if kept.busy and self.capacity else kept.nbytes

    @property
    def warning(self) -> str:
        """What to say of the memory that the jobs will take that run; empty while there is room."""
        capacity, running = self.capacity, self.running
        if capacity is None or not running:
            return ""
        return capacity.warning(sum(job_bytes(taken.job, capacity) for taken in running))

    def _kept(self, slot: Slot | None) -> Kept:
        watch = Stopwatch(self._clock)
        return Kept(self._open(self.pair_name).session(slot, watch), watch)

    def _begin(self) -> None:
        """Jobs that wait begin, while there is room for them."""
        while len(self.works) < self._options.parallel and (taken := self._take()):
            self._beginning = taken
            try:
                with untrusted(failure_of):
                    self.works = self._with(taken)
            except SpecdecError as error:
                self._beginning = None
                self._end(taken, Failure(error.message, error.hint, error.exit_code))
            self._beginning = None

    def _take(self) -> Taken | None:
        """The next job that may begin now, for the loaded pair while any of its jobs runs."""
        loaded = None if self._pair is None else self.pair_name
        return self._queue.take(self._may_begin, loaded, busy=bool(self.works))

    def _with(self, taken: Taken) -> tuple[Work, ...]:
        """The jobs that run and `taken`, in a slot of its own."""
        self._open(taken.job.pair)
        assert self.slots is not None and self.capacity is not None
        require_room(taken.job, self.capacity)
        kept = self.slots.take(taken.job)
        # As if it had waited since the others' last turns began: whoever had a long one waits as long for the next.
        had = min((work.had_seconds - work.last_seconds for work in self.works), default=0.0)
        works = (*self.works, Work(taken, kept, had))
        try:
            self._make_room(works)
        except BaseException:
            self.slots.discard(kept)
            raise
        return works

    def _may_begin(self, taken: Taken) -> bool:
        """Whether its caches fit beside those of the jobs that run, and none of them is reading the same text now.

        A job that shares most of its prompt with one that is being read waits for that: then it reads the rest alone.
        """
        jobs = [work.taken.job for work in self.works]
        fits = self.capacity is None or room_beside([*jobs, taken.job], self.capacity) >= 0 or not jobs
        return fits and not any(work.reads_for(taken.job) for work in self.works)

    def _make_room(self, works: tuple[Work, ...]) -> None:
        """Conversations that nobody uses go, as far as the jobs that run will need their memory."""
        assert self.capacity is not None and self.slots is not None
        jobs = [work.taken.job for work in works]
        held = sum(work.kept.nbytes for work in works)
        self.slots.fit(min(self.budget_bytes, max(room_beside(jobs, self.capacity), 0) + held))

    def _next_turn(self) -> None:
        """A turn of the job that had the least time; the newest goes first among equals, and whoever left before all.

        No name of this thread's loop may hold a job: its models could not be dropped.
        """
        if self.works:
            self._turn(min(reversed(self.works), key=lambda work: (not work.taken.cancelled, work.had_seconds)))

    def _turn(self, work: Work) -> None:
        for event in work.turn(alone=len(self.works) == 1):
            if isinstance(event, Finish | Failure):
                self.works = tuple(other for other in self.works if other is not work)
                self._give_back(work, broken=isinstance(event, Failure) and event.exit_code != UsageError.exit_code)
                self._end(work.taken, event)
            else:
                self._tell(work.taken, event)

    def _give_back(self, work: Work, broken: bool) -> None:
        """The slot of a job that is done; what a failure may have left in it is forgotten."""
        assert self.slots is not None
        try:
            with untrusted(failure_of):
                if broken:
                    work.kept.slot.forget()
                self.slots.give_back(work.kept)
        except SpecdecError:
            self.slots.discard(work.kept)

    def _end(self, taken: Taken, event: Finish | Failure) -> None:
        self.jobs += 1
        self.failed += isinstance(event, Failure)
        self.cancelled += taken.cancelled
        self._queue.took(self._clock() - taken.came)
        self._tell(taken, event)

    def _tell(self, taken: Taken, event: Event) -> None:
        self.totals.fold(event)
        taken.tell(event, self._clock())

    def _end_cancelled(self) -> None:
        for taken in self._queue.take_cancelled():
            taken.cancel()
            self._end(taken, Finish("interrupted", "", (), "", Stats().to_dict()))

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
        if self._keeper is not None:
            yield self._keeper.pause_seconds, self._write
        yield IDLE_SECONDS, self._pair.residency.release
        if self._options.idle_seconds is not None:
            yield self._options.idle_seconds, self._unload_idle

    def _write(self, before: float | None = None) -> bool:
        """Write what is not in the folder, until a job comes or it is `before`; whether all of it is written."""
        if self._keeper is None or self.slots is None or not self._pair or not self._pair.fingerprint:
            return True
        if before is None:
            return self._keeper.write(self.slots, lambda: self._queue.wait(0))
        return self._keeper.write(self.slots, lambda: self.hurried or self._clock() > before)

    def _unload_idle(self) -> None:
        if self._write():
            self._unload()

    def _unload(self) -> None:
        self.slots = self._pair = None
        gc.collect()
        clear_cache()
