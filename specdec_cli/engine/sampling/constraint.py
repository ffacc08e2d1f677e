"""The shape an answer must have, as masks on logits. Law: a mask comes before every warp, on the target and its draft.

So the law under a constraint is the target's distribution, masked, at every step. Masks are computed on the host, from
tokens that were read back: under a constraint a round has one more read-back, of its draft.
Letters: K drafted tokens, N rows, V the target's vocabulary size, W = ceil(V / 32) words of a packed row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from specdec_cli.engine.device import fused


class Constraint(Protocol):
    """The state of one answer: what may follow the tokens that `advance` was given. Nothing else changes it."""

    def forced(self) -> list[int]:
        """Tokens that spell the text that must come next. They are a guess: other tokens may spell the same text."""

    def legal(self, draft: Sequence[int]) -> int:
        """How many of the `draft` tokens may follow; at most one stop token, the last."""

    def masks(self, draft: Sequence[int]) -> Any:
        """[K + 1, W] int32, packed: row i says which tokens may follow the first i of the `draft` tokens [K].

        Rows after an illegal token or a stop token allow everything: nothing of them is ever emitted.
        """

    def advance(self, emitted: Sequence[int]) -> None:
        """These tokens are the answer's next ones."""


def apply_mask(logits: mx.array, rows: mx.array) -> mx.array:
    """`logits` [N, V], -inf where the packed `rows` [N, W] have no bit."""
    words = mx.repeat(rows, 32, axis=-1)[:, : logits.shape[-1]]
    return _mask_out(logits, words, mx.arange(logits.shape[-1], dtype=mx.int32))


@fused
def _mask_out(logits: mx.array, words: mx.array, columns: mx.array) -> mx.array:
    return mx.where((words >> (columns % 32)) & 1, logits, -math.inf)
