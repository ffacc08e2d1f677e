"""Drafts without a network: what the text repeats, what a caller predicted, what a grammar forces.

Prompt lookup (Saxena 2023) over prompt and answer, longest match first. Forced tokens are guesses like any other and
are verified, because a model may spell the same text otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from specdec_cli.core.kinds import FORCED, LOOKUP, PREDICTED
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.drafters.base import Drafter, Proposal
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.engine.planning.rates import MAX_LOOKUP, SHORTEST_MATCH, LookupAcceptance
from specdec_cli.engine.sampling.sampler import TokenMask


class Continuation(NamedTuple):
    """What a lookup would draft: the name of its `source`, and P(its token i + 1 is accepted | those before were)."""

    source: str
    match: int
    rates: tuple[float, ...]


class LookupDrafter(Drafter):
    """The continuation of the longest end of the context that occurred before.

    Context `1 2 3 9 1 2` and K = 3: `1 2` was followed by `3` at position 2, so the draft is `3 9 1`.
    """

    name = LOOKUP.name

    def __init__(self, text: SuffixAutomaton | None = None, rates: LookupAcceptance | None = None) -> None:
        """`rates` by length of match outlive the reply."""
        self._text = SuffixAutomaton() if text is None else text
        self._rates = LookupAcceptance() if rates is None else rates

    def offer(self, in_flight: int = 0) -> Continuation:
        """What it would draft now; with a token in flight, at most: that may make the match longer."""
        self._text.open()
        match = self._text.match.length + in_flight
        source = PREDICTED if self._text.predicts else LOOKUP
        return Continuation(source.name, match, tuple(self._rates.rates(match, MAX_LOOKUP)))

    def propose(self, context: Sequence[int], k: int) -> Proposal:
        yield from ()
        self._text.follow(context)
        if self._text.match.length < SHORTEST_MATCH:
            return NOTHING
        source = PREDICTED if self._text.predicts else LOOKUP
        return Draft(mx.array(self._text.continuation(k), dtype=mx.int32), drafter=source.name)

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        """The text goes on; each new token of the answer tells what a lookup would have been worth there."""
        if not self._text.open():
            return
        if not len(self._text):
            self._text.follow(context)  # the prompt: how it repeats itself is not how the answer repeats it
        new = self._text.unread(context)
        for token in new:
            if length := self._text.match.length:
                self._rates.observe(length, self._text.continuation(1) == [token])
            self._text.append(token)
        self._rates.fade(len(new))


class ForcedDrafter(Drafter):
    """What `constraint` forces next. A single token is proposed too: with its bonus, a pass then yields two."""

    name = FORCED.name

    def __init__(self, constraint: TokenMask) -> None:
        self._constraint = constraint

    def propose(self, context: Sequence[int], k: int) -> Proposal:
        yield from ()
        return Draft(mx.array(self._constraint.forced()[:k], dtype=mx.int32), drafter=self.name)
