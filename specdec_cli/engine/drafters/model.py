"""A small language model that decodes ahead of the target. Law: the target is never cut to the draft.

Letters: V the target's vocabulary size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.drafters.base import Drafter, Parts, StepwiseDrafter, Verified, no_drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.kinds import MODEL
from specdec_cli.request import MAX_UNREAD


class ModelDrafter(StepwiseDrafter):
    """Draws its tokens as `rule` wants them drawn.

    The draft's logits are cut or padded to the target's `vocab_size`. Context ids that the draft has no embedding for
    are fed as its last id: they only cost acceptance.
    """

    name = MODEL.name

    def __init__(self, draft: CachedModel, vocab_size: int, rule: AcceptanceRule) -> None:
        super().__init__(rule)
        self._draft = draft
        self._vocab_size = vocab_size
        self._began = False

    def ready(self, context: Sequence[int]) -> bool:
        # Never before the first `prefill`: it finds what an earlier reply left of use, and marks where the prompt ends.
        return self._began and len(context) - 1 - self._draft.length < MAX_UNREAD

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        self._started = None
        if not self._began:
            self._draft.reuse(context)
        for _ in self._draft.prefill(context):
            yield self._draft.length
        self._began = True

    def _first_logits(self, context: Sequence[int]) -> mx.array:
        return self._fit(self._draft.logits(context, NO_TOKENS))

    def _next_logits(self, token: mx.array) -> mx.array:
        return self._fit(self._draft.extend(token))

    def _fit(self, logits: mx.array) -> mx.array:
        """The last row [1, V]: what it has beyond the vocabulary is cut, what it lacks has no odds."""
        logits = logits[-1:]
        lacking = self._vocab_size - logits.shape[-1]
        if lacking > 0:
            return mx.pad(logits, [(0, 0), (0, lacking)], constant_values=-mx.inf)
        return logits[:, : self._vocab_size]

    def commit(self, verified: Verified) -> None:
        if not self._began:
            return  # chunks of a prompt that is still being read: an earlier reply's caches wait for `prefill`
        # All emitted tokens but the last were this drafter's own, so what it has read of them stays.
        self._draft.commit(verified.context, len(verified.context) - 1)

    def release(self) -> None:
        super().release()
        self._draft.release()


def make(parts: Parts) -> Drafter:
    """The drafter of the pair's draft model; one that drafts nothing where the pair has none."""
    if parts.draft is None:
        return no_drafter(parts)
    return ModelDrafter(parts.draft, parts.target.vocab_size, parts.rule)
