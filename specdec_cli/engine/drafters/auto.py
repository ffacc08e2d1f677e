"""The text itself or the model: who drafts this round. Law: a lookup drafts where it is the better bet, else the model.

Not in the papers: the two are compared by what they cost and what of theirs stood, each round anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

import mlx.core as mx

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.acceptance import AcceptanceRecord
from specdec_cli.engine.draft_length.adaptive import MAX_K
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.draft_length.lookup_acceptance import LookupRecord
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.drafters.suffix_automaton import Lookup
from specdec_cli.events import Round
from specdec_cli.speedup import expected_tokens

LOOKUP = "ngram"


class Rival(DraftLength, Protocol):
    """K of the model, which a lookup has to beat."""

    def lookup_k(self, rates: list[float]) -> int:
        """How many looked-up tokens to draft now, given P(each stands | those before it stood); 0: not this round."""


class FixedRival:
    """The same K every round, by whoever should get more tokens accepted."""

    resting: ClassVar[bool] = False
    why: ClassVar[str] = ""

    def __init__(self, k: int) -> None:
        self._k = k
        self._acceptance = AcceptanceRecord()

    def next(self) -> int:
        return self._k

    def lookup_k(self, rates: list[float]) -> int:
        looked_up, drafted = expected_tokens(rates[: self._k]), expected_tokens(self._acceptance.rates(self._k))
        return len(looked_up) - 1 if looked_up[-1] > drafted[-1] else 0

    def observe(self, round: Round) -> None:
        if round.drafter == "model":
            self._acceptance.drafted(len(round.draft), round.accepted, len(round.emitted))
        else:
            self._acceptance.passed(len(round.emitted))


class BettingDrafter:
    """Drafter and draft length in one, as the two choices are one; a new one for every reply.

    `rival` and `record` outlive it: what they learned serves the next reply. Without a `model` only lookups draft.
    """

    def __init__(self, rival: Rival, record: LookupRecord, model: Drafter | None) -> None:
        self.name = "auto" if model else LOOKUP
        self._rival, self._record, self._model = rival, record, model
        self._lookup = Lookup()
        self._looked_up = self._match = self._model_k = 0

    @property
    def resting(self) -> bool:
        return self._rival.resting

    @property
    def why(self) -> str:
        return f"the last {self._match} tokens occurred before" if self._looked_up else self._rival.why

    def next(self) -> int:
        """At most so many; who drafts how many is settled when the next token is known."""
        self._model_k = self._rival.next()
        # Behind a plain round its token is still to come, and may make the match longer.
        promising = self._rival.lookup_k(self._record.rates(self._lookup.match.length + 1, MAX_K))
        return MAX_K if promising else self._model_k

    def unread(self, context: Sequence[int]) -> int:
        """Settles the bet."""
        self.commit(context)
        self._match = self._lookup.match.length
        self._looked_up = self._rival.lookup_k(self._record.rates(self._match, MAX_K))
        if self._looked_up or not self._model_k or not self._model:
            return 0
        return self._model.unread(context)

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        if self._model:
            yield from self._model.prefill(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        if self._looked_up:
            found = self._lookup.continuation(min(self._looked_up, k))
            return Draft(mx.array(found, dtype=mx.int32), drafter=LOOKUP)
        return self._model.propose(context, min(self._model_k, k)) if self._model and self._model_k else NOTHING

    def commit(self, context: Sequence[int]) -> None:
        self._lookup.extend(context[len(self._lookup) :])
        if self._model:
            self._model.commit(context)

    def release(self) -> None:
        if self._model:
            self._model.release()

    def observe(self, round: Round) -> None:
        self._record.passed(len(round.emitted))
        if round.drafter == LOOKUP:
            self._record.drafted(self._match, len(round.draft), round.accepted)
        self._rival.observe(round)
