"""A desk that says rounds as they are written down."""

from __future__ import annotations

from fakes.desk import SequentialDesk
from specdec_cli.core.events import Finish, Prefill


class SpokenDesk(SequentialDesk):
    """Says these rounds to whoever asks; `between` runs before each."""

    def __init__(self, rounds, between=lambda ticket: None, cached_tokens=0):
        self.rounds, self.between, self.cached_tokens = list(rounds), between, cached_tokens
        super().__init__(None)

    def events(self, ticket):
        yield Prefill(len(ticket.job.prompt), self.cached_tokens, 0.001)
        said = []
        for done in self.rounds:
            self.between(ticket)
            if ticket.cancelled:
                break
            said.append(done)
            yield done
        text = "".join(done.text for done in said)
        yield Finish("interrupted" if ticket.cancelled else "stop", text, (5,), "", {"emitted_tokens": 2})
