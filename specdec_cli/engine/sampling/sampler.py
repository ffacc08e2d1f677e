"""One reply's way from logits to tokens. Law: target and draft pass through the same warps, and every draw has a name.

Letters: K drafted tokens, N rows, V the target's vocabulary width.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.warps import Counts, Sampling, adjusted, draw, log_probs

NONE_BEHIND = mx.array([], dtype=mx.int32)


class Sampler:
    """Settings, noise and, where a penalty is on, what was said so far. `prompt` are the ids before the reply.

    `behind` in the methods below are tokens [n] that were emitted but not yet committed, `pending` ones that are only
    guessed; both stay on the device.
    """

    def __init__(self, sampling: Sampling, seed: int, prompt: Sequence[int], width: int) -> None:
        self.sampling = sampling
        self.width = width
        self.noise = Noise(seed)
        self._counts = Counts.start(sampling, prompt, width) if sampling.counts_tokens else None
        self._gumbels: dict[int, mx.array] = {}
        self._drawn = 0

    def commit(self, emitted: Sequence[int]) -> None:
        """These tokens are said: later penalties count them."""
        if self._counts:
            self._counts = self._counts.add(mx.array(list(emitted)))

    def adjusted(self, logits: mx.array, pending: mx.array, behind: mx.array = NONE_BEHIND) -> mx.array:
        """`logits` [N, V] after bias and penalties: all that an argmax needs. Row i follows pending[:i]."""
        return adjusted(logits, self.sampling, self._rows(pending, behind))

    def log_probs(self, logits: mx.array, pending: mx.array, behind: mx.array = NONE_BEHIND) -> mx.array:
        """Log-probabilities [N, V] after all warps. Row i follows pending[:i]; a single row follows all of them."""
        return log_probs(logits, self.sampling, self._rows(pending, behind))

    def after(self, ahead: Sequence[mx.array]) -> Counts | None:
        """What the penalties count once the draft tokens `ahead` ([1] each) are said too."""
        return self._counts.add(mx.concatenate(list(ahead))) if self._counts and ahead else self._counts

    def target_noise(self, position: int, rows: int) -> mx.array:
        """Gumbel noise [rows, V] of the absolute positions from `position` on; drawn once, used by draft and target."""
        for wanted in range(position, position + rows):
            if wanted not in self._gumbels:
                self._gumbels[wanted] = self.noise.gumbel("target", wanted, self.width)
        return mx.stack([self._gumbels[wanted] for wanted in range(position, position + rows)])

    def forget_noise(self, position: int) -> None:
        """Nothing before `position` will be drawn again."""
        for known in [known for known in self._gumbels if known < position]:
            del self._gumbels[known]

    def draw_for_draft(self, log_q: mx.array) -> mx.array:
        """A token [1] from `log_q` [1, V] with noise of its own, never used again (see `noise`: it would bias)."""
        self._drawn += 1
        return draw(log_q, self.noise.gumbel("draft", self._drawn, self.width)[None])

    def _rows(self, pending: mx.array, behind: mx.array) -> Counts | None:
        if self._counts is None:
            return None
        counts = self._counts.add(behind) if behind.size else self._counts
        return counts.rows(pending)
