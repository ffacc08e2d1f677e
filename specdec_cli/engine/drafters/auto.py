"""The text itself or the model: who drafts this round. Law: a lookup drafts where it should give the cheaper tokens.

Not in the papers: the two are compared by cost and by the acceptance of each, every round anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.draft_length.lookup_acceptance import MAX_LOOKUP, LookupAcceptance
from specdec_cli.engine.drafters.base import Drafter, Parts, Verified
from specdec_cli.engine.drafters.model import make as make_model
from specdec_cli.engine.drafters.mtp import make as make_head
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.events import Round
from specdec_cli.kinds import AUTO, LOOKUP, PREDICTED


class AutoDrafter(Drafter):
    """Drafter and draft length in one, as the two choices are one; a new one for every reply.

    `model_length` chooses K of the model and compares a lookup with it; `lookups` are rates by match length. Both
    outlive this object and serve the next reply. Without a `model` only lookups draft.
    """

    def __init__(
        self,
        model_length: DraftLength,
        lookups: LookupAcceptance,
        model: Drafter | None,
        text: SuffixAutomaton | None = None,
    ) -> None:
        self.name = AUTO.name if model else LOOKUP.name
        self._model_length, self._lookups, self._model = model_length, lookups, model
        self._text = text or SuffixAutomaton()
        self._looked_up = self._match = self._model_k = 0

    def length(self, given: DraftLength) -> DraftLength:
        return self

    @property
    def resting(self) -> bool:
        return self._model_length.resting

    @property
    def reason(self) -> str:
        return f"the last {self._match} tokens occurred before" if self._looked_up else self._model_length.reason

    def next(self) -> int:
        """The most that either may draft; who drafts is chosen when the next token is known."""
        self._model_k = self._model_length.next()
        # After a plain round its token is still to come, and may make the match longer.
        promising = self.lookup_k(self._lookups.rates(self._text.match.length + 1, MAX_LOOKUP))
        return MAX_LOOKUP if promising else self._model_k

    def lookup_k(self, rates: list[float]) -> int:
        return self._model_length.lookup_k(rates)

    def keeps(self, context: Sequence[int]) -> int:
        return self._model.keeps(context) if self._model else len(context)

    def ready(self, context: Sequence[int]) -> bool:
        if self._choose_source() or not self._model_k or not self._model:
            return True
        return self._model.ready(context)

    def _choose_source(self) -> int:
        """K of a lookup now; 0: the model's turn."""
        return self.lookup_k(self._lookups.rates(self._text.match.length, MAX_LOOKUP))

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        if self._model:
            yield from self._model.prefill(context)

    def start(self, context: Sequence[int]) -> None:
        if self._model and self._model_k and not self._choose_source():
            self._model.start(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        self._text.follow(context)
        self._match, self._looked_up = self._text.match.length, self._choose_source()
        if self._looked_up:
            return looked_up(self._text, min(self._looked_up, k))
        return self._model.propose(context, min(self._model_k, k)) if self._model and self._model_k else NOTHING

    def commit(self, verified: Verified) -> None:
        self._judge(verified.context)
        if self._model:
            self._model.commit(verified)

    def _judge(self, context: Sequence[int]) -> None:
        """The text goes on; each new token of the answer tells what a lookup would have been worth there."""
        if not len(self._text):
            self._text.follow(context)  # the prompt: how it repeats itself is not how the answer repeats it
        for token in self._text.unread(context):
            if length := self._text.match.length:
                self._lookups.judged(length, self._text.continuation(1) == [token])
            self._text.append(token)

    def release(self) -> None:
        if self._model:
            self._model.release()

    def observe(self, round: Round) -> None:
        self._lookups.passed(len(round.emitted))
        self._looked_up = 0
        self._model_length.observe(round)


def make(parts: Parts) -> Drafter:
    """The pair's draft, of whatever kind, and lookups; lookups alone where it has none."""
    made = make_head(parts) if parts.head else make_model(parts) if parts.draft else None
    return AutoDrafter(parts.length, parts.lookups, made, SuffixAutomaton(parts.prompt, parts.predicted))


def looked_up(text: SuffixAutomaton, k: int) -> Draft:
    """`k` tokens at most that followed the match before; the draft says whether they were predicted."""
    source = PREDICTED if text.predicts else LOOKUP
    return Draft(mx.array(text.continuation(k), dtype=mx.int32), drafter=source.name)
