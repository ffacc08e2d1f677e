"""Drafts inside a constraint: what it forces for nothing, else what another drafter says, as far as it is legal.

Forced tokens are guesses like any other and are verified, because a model may spell the same text otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.drafters.base import Drafter, DrafterAround
from specdec_cli.engine.sampling.constraint import Constraint
from specdec_cli.kinds import FORCED
from specdec_cli.request import MAX_DRAFT


class ConstrainedDrafter(DrafterAround):
    """Drafter and draft length in one, around another pair of them; nothing is forced at K = 0 either way it is asked.

    A single forced token is proposed too: with its bonus, a pass then yields two.
    """

    def __init__(self, drafter: Drafter, length: DraftLength, constraint: Constraint) -> None:
        super().__init__(drafter, length)
        self._constraint, self._k = constraint, 0

    def next(self) -> int:
        """The most that either may draft: what is forced is known when the round before was read."""
        self._k = self._length.next()
        return MAX_DRAFT

    def ready(self, context: Sequence[int]) -> bool:
        return not self._k or bool(self._constraint.forced()) or self._drafter.ready(context)

    def start(self, context: Sequence[int]) -> None:
        if self._k and not self._constraint.forced():
            self._drafter.start(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        forced = self._constraint.forced()[:k]
        if forced:
            return Draft(mx.array(forced, dtype=mx.int32), drafter=FORCED.name)
        draft = self._drafter.propose(context, min(self._k, k)) if self._k else NOTHING
        # What was drawn from a law was drawn inside the constraint; what was looked up ends at its first illegal token.
        if draft.log_q is not None or not len(draft):
            return draft
        return Draft(draft.tokens[: self._constraint.legal(device.to_list(draft.tokens))], None, draft.drafter)
