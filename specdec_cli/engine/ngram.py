"""Drafts from the text itself: what followed the same tokens before. Law: O(1) host work a token, no model, no device.

Prompt lookup (Saxena 2023) over prompt and answer, longest match first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine.acceptance import NOTHING, Draft

SIZES = (4, 3, 2)


class NgramDrafter:
    """Remembers, for each n-gram of the context, where its latest occurrence went on.

    Context `1 2 3 9 1 2` and K = 3: the 2-gram `1 2` went on at position 2, so the draft is `3 9 1`.
    """

    name = "ngram"

    def __init__(self) -> None:
        self._follows: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        self._follows.clear()
        self._indexed = 0
        self._index(context)
        yield len(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        for n in SIZES:
            start = self._follows.get(tuple(context[-n:])) if len(context) >= n else None
            if start is not None:
                return Draft(mx.array(list(context[start : start + k]), dtype=mx.int32))
        return NOTHING

    def commit(self, context: Sequence[int]) -> None:
        self._index(context)

    def _index(self, context: Sequence[int]) -> None:
        """Every n-gram with a token behind it; an n-gram at the very end has none yet."""
        for position in range(self._indexed, len(context)):
            for n in SIZES:
                if position >= n:
                    self._follows[tuple(context[position - n : position])] = position
        self._indexed = len(context)
