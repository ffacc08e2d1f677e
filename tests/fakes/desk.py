"""A desk of one thread that takes one job after another: what the protocols are tested against."""

from __future__ import annotations

import threading
from collections import deque

from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.events import Failure, Finish
from specdec_cli.core.stats import ChatStats


class Ticket:
    """A job of a fake desk; `cancelled` says whether its client left."""

    def __init__(self, desk, job, deliver):
        self.desk, self.job, self.deliver, self.cancelled = desk, job, deliver, False
        self.read_tokens = 0

    def cancel(self):
        self.cancelled = True


class SequentialDesk:
    """Runs `pair.session().reply` for each job, in order; `jobs` keeps every ticket, `passes` counts rounds."""

    def __init__(self, pair, refusal=None):
        self.pair, self.refusal = pair, refusal
        self.jobs, self.waiting, self.running, self.passes = [], deque(), None, 0
        self._stats = ChatStats()
        self._wake = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, job, deliver):
        if self.refusal is not None:
            raise self.refusal
        ticket = Ticket(self, job, deliver)
        with self._wake:
            self.jobs.append(ticket)
            self.waiting.append(ticket)
            self._wake.notify()
        return ticket

    def status(self):
        running = (self.running,) if self.running else ()
        return SchedulerStatus(running=running, waiting=tuple(self.waiting), totals=self._stats)

    def close(self):
        with self._wake:
            self._open = False
            self._wake.notify()
        for ticket in self.jobs:
            ticket.cancel()
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

    def _run(self, ticket):
        try:
            for event in self.events(ticket):
                self.passes += event.event == "round"
                self._stats.fold(event)
                ticket.deliver(event)
        except SpecdecError as error:
            ticket.deliver(Failure(error.message, error.hint, error.exit_code))

    def events(self, ticket):
        job = ticket.job
        return self.pair.session().reply(job.prompt, job.request, lambda: ticket.cancelled, job.raw)


class ScriptedDesk(SequentialDesk):
    """Says the texts of a script instead of a model's; `steps` splits each into rounds, `between` runs before each."""

    def __init__(self, script, steps=lambda text: [text], between=lambda ticket: None, reason="stop"):
        self.script, self.steps, self.between, self.reason = list(script), steps, between, reason
        super().__init__(None)

    def events(self, ticket):
        from specdec_cli.core.events import Prefill, Round, RoundDone

        text = self.script.pop(0)
        yield Prefill(len(ticket.job.prompt), 0, 0.001)
        said = ""
        for index, piece in enumerate(self.steps(text)):
            self.between(ticket)
            if ticket.cancelled:
                break
            said += piece
            round = Round(index, "none", (), 0, 5, (5,), 0.0, 0.001)
            yield RoundDone(round, (), piece, piece)
        reason = "interrupted" if ticket.cancelled else self.reason
        yield Finish(reason, said, (5,), "", {"emitted_tokens": 2, "decode_seconds": 0.01})
