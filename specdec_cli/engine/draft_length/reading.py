"""Context that the draft has not read, and the price of reading it (pure). Law: read only where it should pay back."""

from __future__ import annotations

from math import exp, inf

from specdec_cli.engine.draft_length.costs import CostRecord


class Reading:
    """`unread` tokens of the context. A `resting` draft gave its memory back: it reads everything again.

    A draft that keeps up with plain rounds never has more than `most` to read at once.
    `reload_seconds` is the time a resting draft takes to be ready again.
    """

    def __init__(self, reload_seconds: float) -> None:
        self.unread = 0
        self.resting = False
        self._context_tokens = 0
        self._most: float = inf
        self._reload_seconds = reload_seconds
        self._expected_token_seconds: float | None = None

    def begin(self, tokens: int, seconds: float | None, most: float = inf) -> None:
        """A reply starts after `tokens` of context, none of which the draft has read."""
        self.unread = self._context_tokens = tokens
        self._most = most
        self.expect(seconds)

    def expect(self, seconds: float | None) -> None:
        """`seconds` is the estimated cost of reading all unread context; None: as measured or assumed."""
        self._expected_token_seconds = seconds / self.unread if seconds and self.unread else None

    def emitted(self, tokens: int, drafted: bool) -> None:
        """A round emitted `tokens`: one that `drafted` has read all before them."""
        self._context_tokens += tokens
        if drafted:
            self.unread, self.resting = 0, False
        else:
            self.unread += tokens

    def rest(self) -> None:
        """The draft gives its memory back."""
        self.resting, self.unread = True, self._context_tokens

    def seconds(self, costs: CostRecord) -> float:
        """Cost of reading what is unread."""
        known = costs.prefill_known or self._expected_token_seconds is None
        token = costs.prefill_token_seconds() if known else self._expected_token_seconds
        return min(self.unread, self._most) * (token or 0.0) + self.resting * self._reload_seconds

    def doubted_seconds(self, costs: CostRecord) -> float:
        """As `seconds`, but unmeasured it may be as much more as the assumed costs may be off."""
        return self.seconds(costs) * (1.0 if costs.prefill_known else exp(costs.assumed.doubt))
