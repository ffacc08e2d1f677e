"""Drafts inside a constraint: what it forces for nothing, else what another drafter says, as far as it is legal.

Law: forced tokens are guesses like any other and are verified, because a model may spell the same text otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.drafters.base import Drafter, Verified
from specdec_cli.engine.sampling.constraint import Constraint
from specdec_cli.events import Round
from specdec_cli.kinds import FORCED
from specdec_cli.request import MAX_DRAFT


class ConstrainedDrafter(Drafter):
    """Drafter and draft length in one, around another pair of them; nothing is forced at K = 0 either way it is asked.

    A single forced token is proposed too: with its bonus, a pass then yields two.
    """

    def __init__(self, drafter: Drafter, length: DraftLength, constraint: Constraint) -> None:
        self.name = drafter.name
        self._drafter, self._length, self._constraint = drafter, length, constraint
        self._k = 0

    def length(self, given: DraftLength) -> DraftLength:
        return self

    @property
    def resting(self) -> bool:
        return self._length.resting

    @property
    def reason(self) -> str:
        return self._length.reason

    def next(self) -> int:
        """The most that either may draft: what is forced is known when the round before was read."""
        self._k = self._length.next()
        return MAX_DRAFT

    def lookup_k(self, rates: list[float]) -> int:
        return self._length.lookup_k(rates)

    def observe(self, round: Round) -> None:
        self._length.observe(round)

    def keeps(self, context: Sequence[int]) -> int:
        return self._drafter.keeps(context)

    def ready(self, context: Sequence[int]) -> bool:
        return not self._k or bool(self._constraint.forced()) or self._drafter.ready(context)

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        yield from self._drafter.prefill(context)

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

    def commit(self, verified: Verified) -> None:
        self._drafter.commit(verified)

    def release(self) -> None:
        self._drafter.release()
