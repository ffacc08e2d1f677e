"""In the place of a CachedModel: models whose scores a test can read. A fake says what the rows of a pass score."""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx

from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import Output


class ScoredModel:
    """Its memo is a length alone. Subclasses say `rows(tokens)` [n, V], of tokens that follow `length` others."""

    vocab_size: int
    length, read = 0, ()
    network = SimpleNamespace(agreed=lambda values: values)  # of one machine

    def rows(self, tokens: mx.array) -> mx.array:
        raise NotImplementedError

    def forward(self, tokens) -> Output:
        scores = self.rows(tokens)
        self.length += tokens.size
        return Output(scores)

    def unfed(self, context) -> mx.array:
        self.length = len(context) - 1
        return mx.array(context[-1:], mx.int32)

    def outputs(self, context, pending=NO_TOKENS) -> Output:
        return self.forward(mx.concatenate([self.unfed(context), pending]))

    def extend(self, tokens):
        return self.forward(tokens).logits

    def commit(self, context, length) -> None:
        self.length = min(self.length, length)

    cut = commit

    def leave(self, context, length) -> None:
        """It shares no passes."""

    def reuse(self, context) -> int:
        return self.length

    def has_room(self, context) -> bool:
        return True

    def prefill(self, context):
        self.length = len(context) - 1
        yield self.forward(NO_TOKENS)

    def release(self) -> None:
        self.length = 0
