"""A desk of one thread that says scripts, one job after another: what the protocols are tested against."""

from __future__ import annotations

import threading
from collections import deque

from specdec_cli.apps.serve.job import JobHandle, SchedulerStatus
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.events import Failure, Finish, Prefill, Round, RoundDone
from specdec_cli.core.stats import ChatStats


def by_letters(text):
    """Pieces of three letters."""
    return [text[at : at + 3] for at in range(0, len(text), 3)]


class ScriptedDesk:
    """Says the texts of `script`, one a job; `steps` splits each into rounds, or has them; `between` runs before each.

    `jobs` keeps every handle, `passes` counts rounds. Whoever hands a job in gets the `refusal`, if there is one.
    """

    def __init__(self, script, steps=lambda text: [text], between=lambda handle: None, reason="stop"):
        self.script, self.steps, self.between, self.reason = list(script), steps, between, reason
        self.jobs, self.waiting, self.running, self.passes, self.refusal = [], deque(), None, 0, None
        self.idle_seconds = None
        self._stats = ChatStats()
        self._wake = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, job, deliver):
        if self.refusal is not None:
            raise self.refusal
        handle = JobHandle(job, deliver, 0.0)
        with self._wake:
            self.jobs.append(handle)
            self.waiting.append(handle)
            self._wake.notify()
        return handle

    def status(self):
        running = (self.running,) if self.running else ()
        waiting = tuple(self.waiting)
        return SchedulerStatus(running=running, waiting=waiting, totals=self._stats, idle_seconds=self.idle_seconds)

    def close(self):
        with self._wake:
            self._open = False
            self._wake.notify()
        for handle in self.jobs:
            handle.cancel()
        self._thread.join(30)

    def _work(self):
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self.waiting or not self._open)
                if not self._open:
                    return
                self.running = self.waiting.popleft()
            self._run(self.running)
            self.running = None

    def _run(self, handle):
        try:
            for event in self.events(handle):
                self.passes += event.event == "round"
                self._stats.fold(event)
                handle.notify(event)
        except SpecdecError as error:
            handle.notify(Failure(error.message, error.hint, error.exit_code))

    def events(self, handle):
        yield Prefill(len(handle.job.prompt), 0, 0.001)
        said = ""
        for index, piece in enumerate(self.steps(self.script.pop(0))):
            self.between(handle)
            if handle.cancelled:
                break
            if isinstance(piece, str):
                piece = RoundDone(Round(index, "none", (), 0, 5, (5,), 0.0, 0.001), (), piece, piece)
            said += piece.text
            yield piece
        reason = "interrupted" if handle.cancelled else self.reason
        yield Finish(reason, said, (5,), "", {"emitted_tokens": 2, "decode_seconds": 0.01})


def spoken_desk(rounds):
    """A desk that says these rounds to whoever asks."""
    return ScriptedDesk([""] * 9, steps=lambda text: rounds)
