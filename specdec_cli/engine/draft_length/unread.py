"""Context that the draft has not read, and what reading it would cost (pure). Law: a draft at rest has read nothing."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from specdec_cli.engine.draft_length.costs import CostRecord


@dataclass(slots=True)
class Unread:
    """`tokens` of `context` are unread. `reload_seconds` is the time that a draft at rest takes to be ready again.

    `most` is what a draft that keeps up with plain rounds ever has to read at once.
    """

    reload_seconds: float = 0.0
    tokens: int = 0
    context: int = 0
    most: float = inf
    resting: bool = False
    _token_seconds: float | None = None

    def begin(self, tokens: int, seconds: float | None, most: float) -> None:
        """A reply starts: its context is as long as what is unread of it, until the first round says more."""
        self.tokens = self.context = tokens
        self.most = most
        self.expect(seconds)

    def expect(self, seconds: float | None) -> None:
        """Reading all of it is estimated to take `seconds`; None: as measured or assumed."""
        self._token_seconds = seconds / self.tokens if seconds and self.tokens else None

    def rest(self) -> None:
        """The draft gives its memory back, and will have to read everything again."""
        self.resting, self.tokens = True, self.context

    def read(self) -> None:
        """The draft has read all of it."""
        self.resting, self.tokens = False, 0

    def seconds(self, costs: CostRecord) -> float:
        """Time until the draft has read it."""
        known = costs.prefill_known or self._token_seconds is None
        token = costs.prefill_token_seconds() if known else self._token_seconds
        return min(self.tokens, self.most) * (token or 0.0) + self.resting * self.reload_seconds
