"""In the place of a CachedModel: the next token depends on the last one alone, by a table that a test can read."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import Output


class MarkovModel:
    """`table` [V, V]: row x holds the probabilities of what follows x."""

    def __init__(self, table) -> None:
        with np.errstate(divide="ignore"):
            self._scores = mx.array(np.log(table).astype(np.float32))
        self.vocab_size = len(table)
        self.length = 0
        self._last = NO_TOKENS

    def outputs(self, context, pending=NO_TOKENS) -> Output:
        self.length = len(context) - 1
        return self.forward(mx.concatenate([mx.array(context[-1:], mx.int32), pending]))

    def forward(self, tokens) -> Output:
        self.length += tokens.size
        return Output(self._scores[tokens])

    def logits(self, context, pending):
        return self.outputs(context, pending).logits

    def extend(self, tokens):
        return self.forward(tokens).logits

    def commit(self, context, length) -> None:
        self.length = min(self.length, length)

    def reuse(self, context) -> int:
        return self.length

    def has_room(self, context) -> bool:
        return True

    def prefill(self, context):
        self.length = len(context) - 1
        yield self.forward(NO_TOKENS)
