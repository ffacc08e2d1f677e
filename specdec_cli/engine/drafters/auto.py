"""Who drafts this round: a grammar that forces words, the text itself, or a network.

Prompt lookup (Saxena 2023) over prompt and answer, longest match first. Not in the papers: lookups and network are
compared by cost and by the acceptance of each, every round anew. Forced tokens are guesses like any other and are
verified, because a model may spell the same text otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import mlx.core as mx

from specdec_cli.core.events import Round
from specdec_cli.core.kinds import AUTO, FORCED, LOOKUP, PREDICTED
from specdec_cli.core.request import MAX_DRAFT
from specdec_cli.engine import device
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.adaptive import DraftLength, Fixed
from specdec_cli.engine.draft_length.rates import MAX_LOOKUP, SHORTEST_MATCH, LookupAcceptance
from specdec_cli.engine.drafters.base import Drafter, DrafterAround, Parts
from specdec_cli.engine.drafters.stepwise import make_network
from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton
from specdec_cli.engine.sampling.sampler import TokenMask

# K of the first try of what was predicted, doubled while all of it is accepted.
FIRST_TRY = 2
# Plain steps that predicted drafts may lose before they rest for so many tokens, twice as many each time; gains count
# up to as many steps.
MOST_LOST, FIRST_REST = 2.0, 16


@dataclass(slots=True)
class PredictionLength:
    """K of what was predicted, by what its own drafts gained and lost in this reply.

    A caller who predicts knows something, so it is tried at once, whatever is known of the machine and whatever other
    drafts lost. A round of n rows hardly costs more than n plain steps, so what is right never loses.
    """

    k: int = FIRST_TRY
    lost: float = 0.0
    rest_tokens: int = 0
    _next_rest: int = FIRST_REST
    _plain_seconds: float = inf

    def k_of(self, match: int) -> int:
        """K of a predicted draft after a match of `match` tokens; 0 where the prediction does not draft."""
        return min(self.k, match) if match >= SHORTEST_MATCH and self.rest_tokens <= 0 else 0

    def observe(self, round: Round) -> None:
        """Learn from a finished round of any drafter."""
        self.rest_tokens -= len(round.emitted)
        if not round.draft:
            self._plain_seconds = min(self._plain_seconds, round.verify_seconds)
        if round.drafter != PREDICTED.name:
            return
        seconds = round.draft_seconds + round.verify_seconds
        steps = seconds / self._plain_seconds if self._plain_seconds else len(round.draft) + 1
        self.lost = max(self.lost + steps - len(round.emitted), -MOST_LOST)
        whole = round.accepted == len(round.draft)
        self.k = min(max(self.k, 2 * len(round.draft)), MAX_LOOKUP) if whole else max(round.accepted, FIRST_TRY)
        if self.lost < 0:
            self._next_rest = FIRST_REST
        elif self.lost > MOST_LOST:
            self.rest_tokens, self.lost = self._next_rest, 0.0
            self._next_rest *= 2


class AutoDrafter(DrafterAround):
    """Drafter and draft length in one, as the two choices are one; a new one for every reply.

    `model_length` chooses K of the model and compares a lookup with it; `lookups` are rates by match length. Both
    outlive this object and serve the next reply. Without a `model` only lookups draft. `predictions` chooses K of what
    was predicted, before anyone else is asked; without it a prediction is a lookup like any other.
    """

    def __init__(
        self,
        model_length: DraftLength,
        lookups: LookupAcceptance,
        model: Drafter | None,
        text: SuffixAutomaton | None = None,
        predictions: PredictionLength | None = None,
    ) -> None:
        super().__init__(model or Drafter(), model_length)
        self.name = AUTO.name if model else LOOKUP.name
        self._lookups = lookups
        self._text = SuffixAutomaton() if text is None else text
        self._predictions = predictions
        self._looked_up = self._match = self._model_k = 0

    @property
    def reason(self) -> str:
        return f"the last {self._match} tokens occurred before" if self._looked_up else self._length.reason

    def next(self) -> int:
        """The most that either may draft; who drafts is chosen when the next token is known."""
        self._text.open()
        self._model_k = self._length.next()
        # After a plain round its token is still to come, and may make the match longer.
        return MAX_LOOKUP if self._choose_source(self._text.match.length + 1) else self._model_k

    def ready(self, context: Sequence[int]) -> bool:
        return not self._drafts_by_model or self._drafter.ready(context)

    @property
    def _drafts_by_model(self) -> bool:
        """Whether the model drafts, as far as the text is known."""
        return not self._choose_source(self._text.match.length) and bool(self._model_k)

    def _choose_source(self, match: int) -> int:
        """K of a lookup after a match of `match` tokens; 0: the model's turn."""
        predicted = self._predictions.k_of(match) if self._predictions and self._text.predicts else 0
        return predicted or self.lookup_k(self._lookups.rates(match, MAX_LOOKUP))

    def start(self, context: Sequence[int]) -> None:
        if self._drafts_by_model:
            self._drafter.start(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        self._text.follow(context)
        self._match = self._text.match.length
        self._looked_up = self._choose_source(self._match)
        if self._looked_up:
            return draft_from(self._text, min(self._looked_up, k))
        return self._drafter.propose(context, min(self._model_k, k)) if self._model_k else NOTHING

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        """The text goes on; each new token of the answer tells what a lookup would have been worth there."""
        super().commit(context, hidden)
        if not self._text.open():
            return
        if not len(self._text):
            self._text.follow(context)  # the prompt: how it repeats itself is not how the answer repeats it
        for token in self._text.unread(context):
            if length := self._text.match.length:
                self._lookups.observe(length, self._text.continuation(1) == [token])
            self._text.append(token)

    def observe(self, round: Round) -> None:
        self._lookups.fade(len(round.emitted))
        if self._predictions:
            self._predictions.observe(round)
        self._looked_up = 0
        super().observe(round)


class NgramDrafter(Drafter):
    """The continuation of the longest end of the context that occurred before.

    Context `1 2 3 9 1 2` and K = 3: `1 2` was followed by `3` at position 2, so the draft is `3 9 1`.
    """

    name = LOOKUP.name

    def __init__(self, text: SuffixAutomaton | None = None) -> None:
        self.text = SuffixAutomaton() if text is None else text

    def propose(self, context: Sequence[int], k: int) -> Draft:
        self.text.follow(context)
        if self.text.match.length < SHORTEST_MATCH:
            return NOTHING
        return draft_from(self.text, k)

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        self.text.follow(context)


class ConstrainedDrafter(DrafterAround):
    """Drafter and draft length in one, around another pair of them; nothing is forced at K = 0 either way it is asked.

    A single forced token is proposed too: with its bonus, a pass then yields two.
    """

    def __init__(self, drafter: Drafter, length: DraftLength, constraint: TokenMask) -> None:
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


def draft_from(text: SuffixAutomaton, k: int) -> Draft:
    """`k` tokens at most that followed the match before; the draft says whether they were predicted."""
    source = PREDICTED if text.predicts else LOOKUP
    return Draft(mx.array(text.continuation(k), dtype=mx.int32), drafter=source.name)


def make_auto(parts: Parts) -> Drafter:
    """The pair's draft together with lookups; lookups alone where it has none."""
    made = make_network(parts) if parts.draft else None
    # A fixed K holds for predictions too.
    predictions = None if isinstance(parts.length, Fixed) else PredictionLength()
    return AutoDrafter(parts.length, parts.lookups, made, SuffixAutomaton(parts.prompt, parts.predicted), predictions)


def make_lookup(parts: Parts) -> Drafter:
    """Every match under a fixed K; under `-k auto` those that cost less than plain decoding."""
    text = SuffixAutomaton(parts.prompt, parts.predicted)
    if isinstance(parts.length, Fixed):
        return NgramDrafter(text)
    return AutoDrafter(parts.length, parts.lookups, None, text, PredictionLength())
