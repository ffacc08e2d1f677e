"""Drafts from the text itself: what followed the same tokens before. It needs no model.

Prompt lookup (Saxena 2023) over prompt and answer, longest match first.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.acceptance import SHORTEST_MATCH
from specdec_cli.engine.draft_length.fixed import Fixed
from specdec_cli.engine.drafters.auto import AutoDrafter, PredictionLength, draft_from
from specdec_cli.engine.drafters.base import Drafter, Parts, Verified
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.kinds import LOOKUP


class NgramDrafter(Drafter):
    """The continuation of the longest end of the context that occurred before.

    Context `1 2 3 9 1 2` and K = 3: `1 2` was followed by `3` at position 2, so the draft is `3 9 1`.
    """

    name = LOOKUP.name

    def __init__(self, text: SuffixAutomaton | None = None) -> None:
        self.text = SuffixAutomaton() if text is None else text

    def propose(self, context: Sequence[int], k: int) -> Draft:
        self.text.follow(context)
        if self.text.match.length < SHORTEST_MATCH:
            return NOTHING
        return draft_from(self.text, k)

    def commit(self, verified: Verified) -> None:
        self.text.follow(verified.context)


def make(parts: Parts) -> Drafter:
    """Every match under a fixed K; under `-k auto` those that cost less than plain decoding."""
    text = SuffixAutomaton(parts.prompt, parts.predicted)
    if isinstance(parts.length, Fixed):
        return NgramDrafter(text)
    return AutoDrafter(parts.length, parts.lookups, None, text, PredictionLength())
