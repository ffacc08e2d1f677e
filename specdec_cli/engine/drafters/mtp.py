"""A head trained with the target, which drafts from the target's own hidden states. It keeps no states of its own.

Its first token comes from the pass that reads the accepted tokens with the target's states; each further one from what
the pass before it carried on. Letters: K drafted tokens, V the target's vocabulary size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.drafters.base import Drafter, Parts, StepwiseDrafter, Verified, no_drafter, read_together
from specdec_cli.engine.heads.cached import CachedHead
from specdec_cli.engine.heads.mtp import Step
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.kinds import MTP


class MtpDrafter(StepwiseDrafter):
    """Draws its tokens as `rule` wants them drawn, over the target's own vocabulary."""

    name = MTP.name

    def __init__(self, head: CachedHead, target: CachedModel, rule: AcceptanceRule) -> None:
        super().__init__(rule)
        self._head, self._target = head, target
        self._step: Step | None = None

    def keeps(self, context: Sequence[int]) -> int:
        return self._head.reuse(context)

    def ready(self, context: Sequence[int]) -> bool:
        return self._head.follows(context)

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        """The target reads again what the head has not read: states that nobody handed over are kept nowhere."""
        self._started = None
        kept = self._head.reuse(context)
        self._target.commit(context, max(min(kept, len(context) - 2), 0))
        for _ in read_together(self._target, self, context):
            yield self._target.length

    def commit(self, verified: Verified) -> None:
        states = verified.hidden.get(self._head.head.recipe.reads)
        if states is not None:
            self._head.hand_over(verified.context, states)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        return super().propose(context, k) if self._head.follows(context) else NOTHING

    def _first_logits(self, context: Sequence[int]) -> mx.array:
        self._step = self._head.first()
        return self._head.logits(self._step.scored)

    def _next_logits(self, token: mx.array) -> mx.array:
        assert self._step is not None
        self._step = self._head.next(token, self._step.carried)
        return self._head.logits(self._step.scored)


def make(parts: Parts) -> Drafter:
    """The drafter of the pair's head; one that drafts nothing where the pair has none."""
    if parts.head is None:
        return no_drafter(parts)
    return MtpDrafter(parts.head, parts.target, parts.rule)
