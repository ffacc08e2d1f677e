"""The desk: jobs come in from any thread, one thread runs them. Law: every job taken on ends with a last event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from specdec_cli.engine.pipeline import Clock
from specdec_cli.serve.admission import require_room
from specdec_cli.serve.folder import Folder
from specdec_cli.serve.generation import Generation
from specdec_cli.serve.job import Deliver, Health, Job, Ticket
from specdec_cli.serve.options import DeskOptions
from specdec_cli.serve.queue import Queue
from specdec_cli.serve.status import DeskStatus, SlotStatus, Totals
from specdec_cli.serve.work import Taken
from specdec_cli.session.session import LoadedPair

# Longest wait for the round in flight when the desk closes.
CLOSING_SECONDS = 30.0
DEFAULTS = DeskOptions()


@dataclass(frozen=True, slots=True)
class QueueTicket:
    """A job that was taken on."""

    taken: Taken
    queue: Queue

    @property
    def position(self) -> int:
        """How many jobs wait before it; 0 once it runs."""
        return self.queue.position(self.taken)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.taken.cancel()


class GenerationDesk:
    """Implements `Desk`. `load` gives the pair, now and again after every unloading, always in the desk's own thread.

    `switch` gives the pair that a job names, in the place of the one that is loaded.

    Raises: what `load` raises now.
    """

    def __init__(
        self,
        load: Callable[[], LoadedPair],
        options: DeskOptions | None = None,
        clock: Clock = time.perf_counter,
        folder: Folder | None = None,
        switch: Callable[[str], LoadedPair] | None = None,
    ) -> None:
        self.options, self._clock = options or DeskOptions(), clock
        self._queue = Queue(self.options.queue)
        named = (lambda name: switch(name) if name else load()) if switch else lambda name: load()
        self._generation = Generation(named, self._queue, self.options, clock, folder)
        self._thread = threading.Thread(target=self._generation.run, name="generation", daemon=True)
        self._thread.start()
        self._generation.opened.wait()
        if self._generation.failure is not None:
            raise self._generation.failure

    def submit(self, job: Job, deliver: Deliver) -> Ticket:
        """Take `job` on: `deliver` gets its events, from another thread, the last one a Finish or a Failure.

        Raises: Busy if too many wait, TooLong if the prompt exceeds the context, TooLarge for the memory.
        """
        if (capacity := self._generation.capacities.get(job.pair)) is not None:
            require_room(job, capacity)
        taken = Taken(job, deliver, self._clock())
        self._queue.put(taken)
        return QueueTicket(taken, self._queue)

    def health(self) -> Health:
        """How busy it is; from any thread, without waiting."""
        made, waiting = self._generation, self._queue.waiting()
        running = made.running
        jobs = tuple(taken.job.noun for taken in [*running, *waiting])
        return Health(len(running), len(waiting), self.options.slots, made.loaded, jobs, made.pair_name)

    def status(self) -> DeskStatus:
        """Everything an operator may want to see; from any thread, without waiting."""
        made, now = self._generation, self._clock()
        slots = tuple(
            SlotStatus(one.length, made.bytes_of(one), now - one.used_at, one.busy, one.key, one.prefix_only)
            for one in made.slots or ()
        )
        totals = Totals.of(made.totals, made.jobs, made.failed, made.cancelled)
        return DeskStatus(
            loaded=made.loaded,
            running=tuple(taken.status(0, now) for taken in made.running),
            waiting=tuple(taken.status(place, now) for place, taken in enumerate(self._queue.waiting())),
            slots=slots,
            most_slots=self.options.slots,
            cache_bytes=sum(slot.nbytes for slot in slots),
            budget_bytes=made.budget_bytes,
            warning=made.warning,
            totals=totals,
            pair=made.pair_name,
        )

    def close(self) -> None:
        """End every job and the thread; from any thread but its own."""
        self._queue.close()
        try:
            self._thread.join(CLOSING_SECONDS)
        except KeyboardInterrupt:  # a second Ctrl-C: conversations that are not written yet are not waited for
            self._generation.hurried = True
            self._thread.join(CLOSING_SECONDS)
            raise


def make_desk(
    load: Callable[[], LoadedPair],
    *,
    slots: int = DEFAULTS.slots,
    cache_bytes: int | None = None,
    parallel: int = DEFAULTS.parallel,
    idle_seconds: float | None = DEFAULTS.idle_seconds,
    queue: int = DEFAULTS.queue,
    folder: Folder | None = None,
    switch: Callable[[str], LoadedPair] | None = None,
) -> GenerationDesk:
    """A desk that runs; conversations outlive it in `folder`. Raises: what `load` raises."""
    options = DeskOptions(parallel, queue, slots, cache_bytes, idle_seconds)
    return GenerationDesk(load, options, folder=folder, switch=switch)
