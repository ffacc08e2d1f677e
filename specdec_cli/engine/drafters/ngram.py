"""Drafts from the text itself: what followed the same tokens before. Law: no model, no device, O(1) host work a token.

Prompt lookup (Saxena 2023) over prompt and answer, longest match first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.lookup_acceptance import SHORTEST_MATCH
from specdec_cli.engine.drafters.suffix_automaton import Lookup


class NgramDrafter:
    """The continuation of the longest end of the context that occurred before.

    Context `1 2 3 9 1 2` and K = 3: `1 2` went on at position 2, so the draft is `3 9 1`.
    """

    name = "ngram"

    def __init__(self) -> None:
        self.lookup = Lookup()

    def unread(self, context: Sequence[int]) -> int:
        return 0

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        yield from ()

    def propose(self, context: Sequence[int], k: int) -> Draft:
        self.commit(context)
        if self.lookup.match.length < SHORTEST_MATCH:
            return NOTHING
        return Draft(mx.array(self.lookup.continuation(k), dtype=mx.int32), drafter=self.name)

    def commit(self, context: Sequence[int]) -> None:
        self.lookup.extend(context[len(self.lookup) :])

    def release(self) -> None:
        return
