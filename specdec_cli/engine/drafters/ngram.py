"""Drafts from the text itself: what followed the same tokens before. Law: no model, O(1) host work a token.

Prompt lookup (Saxena 2023) over prompt and answer, longest match first.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.draft_length.lookup_acceptance import SHORTEST_MATCH
from specdec_cli.engine.drafters.auto import AutoDrafter
from specdec_cli.engine.drafters.base import Drafter, Parts, Verified
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.kinds import LOOKUP


class NgramDrafter(Drafter):
    """The continuation of the longest end of the context that occurred before.

    Context `1 2 3 9 1 2` and K = 3: `1 2` was followed by `3` at position 2, so the draft is `3 9 1`.
    """

    name = LOOKUP.name

    def __init__(self) -> None:
        self.text = SuffixAutomaton()

    def propose(self, context: Sequence[int], k: int) -> Draft:
        self.text.follow(context)
        if self.text.match.length < SHORTEST_MATCH:
            return NOTHING
        return Draft(mx.array(self.text.continuation(k), dtype=mx.int32), drafter=self.name)

    def commit(self, verified: Verified) -> None:
        self.text.follow(verified.context)


def make(parts: Parts) -> Drafter:
    """Every match under a fixed K; under `-k auto` those that cost less than plain decoding."""
    return NgramDrafter() if isinstance(parts.length, Fixed) else AutoDrafter(parts.length, parts.lookups, None)
