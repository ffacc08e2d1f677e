"""One reply's way from logits to tokens. Law: target and draft pass the same warps, and every draw has a name.

Scores are what a token is chosen by: the adjusted logits at temperature 0, whose argmax is all that counts; above it
log-probabilities after all warps. Under a constraint a mask comes before every warp, on the target and its draft: the
law is then the target's distribution, masked, at every step. Masks are computed on the host, from tokens that were read
back, so a round has one more read-back, of its draft.
Letters: K drafted tokens, N rows, V the target's vocabulary size, W = ceil(V / 32) words of a packed row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.device import fused
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.warps import Counts, Sampling, adjusted, draw, log_probs


class TokenMask(Protocol):
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


class Sampler:
    """Settings, noise and, where a penalty is on, the tokens emitted so far. `prompt` are the ids before the reply."""

    def __init__(
        self,
        sampling: Sampling,
        seed: int,
        prompt: Sequence[int],
        vocab_size: int,
        constraint: TokenMask | None = None,
    ) -> None:
        self.sampling = sampling
        self._constraint = constraint
        self.vocab_size = vocab_size
        self.noise = Noise(seed)
        self._counts = Counts.start(sampling, prompt, vocab_size) if sampling.counts_tokens else None
        self._gumbels: dict[int, mx.array] = {}
        self._drawn = 0

    def for_draft(self, logits: mx.array, ahead: Sequence[mx.array]) -> mx.array:
        """Scores [1, V] of the draft's `logits` [1, V], which follow the context and the draft tokens `ahead`.

        A draft that has odds for nothing that a constraint allows has the same for all of that.
        """
        counts = self._counts
        if counts and ahead:
            counts = counts.add(mx.concatenate(list(ahead)))
        if self._constraint:
            rows = self._masks(self._constraint, logits, ahead)
            masked = apply_mask(logits, rows)
            known = mx.max(masked, axis=-1, keepdims=True) > -math.inf
            logits = mx.where(known, masked, apply_mask(mx.zeros_like(logits), rows))
        return self._scores(logits, counts)

    def for_target(self, logits: mx.array, pending: mx.array, uncommitted: mx.array = NO_TOKENS) -> mx.array:
        """Scores [N, V] of the target's `logits` [N, V]. Row i follows pending[:i]; a single row follows all of them.

        `pending` [K] are guesses, `uncommitted` [n] emitted tokens that were not committed yet. Both are on the device.
        """
        counts = self._counts
        if counts:
            counts = (counts.add(uncommitted) if uncommitted.size else counts).rows(pending)
        if self._constraint:
            logits = apply_mask(logits, self._masks(self._constraint, logits, (uncommitted, pending)))
        return self._scores(logits, counts)

    def _masks(self, constraint: TokenMask, logits: mx.array, ahead: Sequence[mx.array]) -> mx.array:
        """Packed rows [N, W] for `logits` [N, V], the last of which follows the tokens `ahead`.

        The logits are queued first: the device computes them while the host computes the masks.
        """
        device.queue(logits)
        tokens = [token for part in ahead if part.size for token in device.to_list(part)]
        return mx.array(constraint.masks(tokens)[-logits.shape[0] :])

    def _scores(self, logits: mx.array, counts: Counts | None) -> mx.array:
        return (adjusted if self.sampling.greedy else log_probs)(logits, self.sampling, counts)

    def commit(self, emitted: Sequence[int]) -> None:
        """These tokens are emitted: later penalties count them."""
        if self._counts:
            self._counts = self._counts.add(mx.array(list(emitted)))
        if self._constraint:
            self._constraint.advance(emitted)

    def target_noise(self, position: int, rows: int) -> mx.array:
        """Gumbel noise [rows, V] of the absolute positions from `position` on; drawn once, used by draft and target."""
        wanted = range(position, position + rows)
        missing = [at for at in wanted if at not in self._gumbels]
        if missing:
            # Missing are the last ones: noise is drawn in the order of positions, and forgotten from the front.
            first, many = missing[0], wanted.stop - missing[0]
            drawn = self.noise.gumbels("target", first, many, self.vocab_size)
            self._gumbels.update((first + row, drawn[row : row + 1]) for row in range(many))
            if many == rows:
                return drawn
        return self._gumbels[position] if rows == 1 else mx.concatenate([self._gumbels[at] for at in wanted])

    def forget_noise(self, position: int) -> None:
        """Nothing before `position` will be drawn again."""
        for known in [known for known in self._gumbels if known < position]:
            del self._gumbels[known]

    def draw_for_draft(self, log_q: mx.array) -> mx.array:
        """A token [1] from `log_q` [1, V] with noise of its own, never used again (see `noise`: it would bias)."""
        self._drawn += 1
        return draw(log_q, self.noise.gumbel("draft", self._drawn, self.vocab_size)[None])
