"""Networks that draft one token after another: a small language model, or a head over the target's hidden states.

Letters: K drafted tokens, V the target's vocabulary size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence

import mlx.core as mx

from specdec_cli.core.kinds import MODEL, TRANSLATED
from specdec_cli.core.request import MAX_UNREAD
from specdec_cli.engine import device
from specdec_cli.engine.cache.shown import Shown
from specdec_cli.engine.draft import NO_TOKENS, Draft
from specdec_cli.engine.drafters.base import Drafter, DraftStep, Parts, Proposal, read_together
from specdec_cli.engine.heads.cached_head import CachedHead
from specdec_cli.engine.heads.mtp import HeadPass
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, DraftToken
from specdec_cli.engine.translated import TranslatedModel
from specdec_cli.models.translation import TranslatedText

Scored = Generator[DraftStep, None, mx.array]
"""Yields the step that it takes, if others' may run with it, and returns its logits [1, V]."""


class StepwiseDrafter(Drafter):
    """Drafts one token after another, each drawn as `rule` wants it drawn; nothing is read back.

    A subclass gives the logits: those of the first token, then those after each drafted one.
    """

    def __init__(self, rule: AcceptanceRule) -> None:
        self._rule = rule

    def _read(self, context: Sequence[int]) -> Iterator[int]:
        """Read what is missing of `context`, unless that is little; yields as a Proposal does."""
        yield from ()

    @abstractmethod
    def _first_logits(self, context: Sequence[int]) -> Scored:
        """After `context`."""

    @abstractmethod
    def _next_logits(self, token: mx.array) -> Scored:
        """After one more drafted `token` [1]."""

    def propose(self, context: Sequence[int], k: int) -> Proposal:
        """k draft passes, each token queued as soon as it is known to the device."""
        yield from self._read(context)
        logits = yield from self._first_logits(context)
        choices = [self._choose(logits, len(context), [])]
        yield None
        while len(choices) < k:
            logits = yield from self._next_logits(choices[-1].token)
            choices.append(self._choose(logits, len(context), [choice.token for choice in choices]))
        log_q = [choice.log_q for choice in choices if choice.log_q is not None]
        tokens = mx.concatenate([choice.token for choice in choices])
        # An event of its own, so that the loop can wait for the draft alone.
        device.queue(tokens)
        return Draft(tokens, mx.concatenate(log_q) if log_q else None, self.name)

    def _choose(self, logits: mx.array, position: int, ahead: list[mx.array]) -> DraftToken:
        choice = self._rule.choose(logits, position + len(ahead), ahead)
        device.queue(choice.token)
        return choice


class ModelDrafter(StepwiseDrafter):
    """A small language model that decodes ahead of the target. Law: the target is never cut to the draft.

    The draft's logits are cut or padded to the target's `vocab_size`. Ids that the draft has no embedding for, of the
    context or drafted under a constraint, are fed as its last id: they only cost acceptance.
    """

    name = MODEL.name

    def __init__(self, draft: CachedModel, vocab_size: int, rule: AcceptanceRule) -> None:
        super().__init__(rule)
        self._draft = draft
        self._vocab_size, self._lacks_ids = vocab_size, draft.vocab_size < vocab_size
        self._began = False

    def _read(self, context: Sequence[int]) -> Iterator[int]:
        # At first always: it finds what an earlier reply left of use, and marks where the prompt ends.
        ids = self._ids(context)
        room = self._began and self._draft.has_room(ids)
        if room and len(ids) - 1 - self._draft.length < MAX_UNREAD:
            return
        self.leave()
        if not room:
            self._draft.reuse(ids)
        yield self._place()
        for _ in self._draft.prefill(ids):
            yield self._place()
        self._began = True

    def _ids(self, context: Sequence[int]) -> Sequence[int]:
        """`context` as the draft reads it."""
        return context

    def _place(self) -> int:
        """The position in the context that it has read up to."""
        return self._draft.length

    def _first_logits(self, context: Sequence[int]) -> Scored:
        return self._step(self._draft.unfed(self._ids(context)))

    def _next_logits(self, token: mx.array) -> Scored:
        return self._step(mx.minimum(token, self._draft.vocab_size - 1) if self._lacks_ids else token)

    def _step(self, tokens: mx.array) -> Scored:
        step = DraftStep(self._draft, tokens)
        yield step
        return self._fit(step.run())

    def _fit(self, logits: mx.array) -> mx.array:
        """[1, V]: what it has beyond the vocabulary is cut, what it lacks has no odds."""
        lacking = self._vocab_size - logits.shape[-1]
        if lacking > 0:
            return mx.pad(logits, [(0, 0), (0, lacking)], constant_values=-mx.inf)
        return logits[:, : self._vocab_size]

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        if self._began:  # while a prompt is still being read, an earlier reply's caches wait for `_read`
            # All emitted tokens but the last were this drafter's own, so what it has read of them stays.
            self._draft.cut(context, len(context) - 1)

    def leave(self) -> None:
        self._draft.leave(self._draft.read, self._draft.length)

    def release(self) -> None:
        self.leave()
        self._draft.release()


class TranslatedDrafter(ModelDrafter):
    """A model with a tokenizer of its own, which drafts in the target's ids.

    Each drafted token is one id of either, so what a round accepts stays in the draft's caches as it was read.
    Elsewhere a token of the target's may be several of the draft's, and the caches are counted in those.
    """

    name = TRANSLATED.name

    def __init__(self, draft: TranslatedModel, vocab_size: int, rule: AcceptanceRule) -> None:
        super().__init__(draft, vocab_size, rule)
        self._tables, self._text = draft.tables, TranslatedText(draft.translation)

    def _ids(self, context: Sequence[int]) -> Sequence[int]:
        return self._text.follow(context)

    def _place(self) -> int:
        return self._text.tokens_at(self._draft.length)

    def _next_logits(self, token: mx.array) -> Scored:
        return self._step(self._tables.ids[token])

    def _fit(self, logits: mx.array) -> mx.array:
        return self._tables.scores(logits)

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        if self._began:
            known, last = len(self._text.ends) - 1, len(context) - 1
            ids = self._text.follow(context)
            # Where a constraint leaves nothing that it can say, a token is drafted that it was not fed.
            kept = next((at for at in range(known, last) if context[at] not in self._tables.said), last)
            self._draft.cut(ids, self._text.ends[kept])


class HeadDrafter(StepwiseDrafter):
    """A head trained with the target, which drafts from the target's own hidden states and keeps none of its own.

    Its first token comes from the pass that reads the accepted tokens with the target's states; each further one from
    what the pass before it carried on. Medusa heads draft no more tokens than they are, and all from that first pass.
    One that attends to the target's keys and values is shown them while it drafts, at no other time: who holds them
    when the target's next pass writes makes that copy them.
    """

    def __init__(self, head: CachedHead, target: CachedModel, rule: AcceptanceRule) -> None:
        super().__init__(rule)
        self._head, self._target, self.name = head, target, head.kind
        self._step: HeadPass | None = None
        self._shown: Shown | None = None
        self._k, self._known = 0, NO_TOKENS

    def propose(self, context: Sequence[int], k: int) -> Proposal:
        """As any; at most so many tokens as the head can."""
        self._k = min(k, self._head.most)
        try:
            return (yield from super().propose(context, self._k))
        finally:
            self._shown = None

    def keeps(self, context: Sequence[int]) -> int:
        """Before the target reads `context`: the leading positions whose hidden states are not needed again."""
        return self._head.reuse(context)

    def follows(self, context: Sequence[int]) -> bool:
        """Whether the target need not read anything again before a draft for `context`."""
        seen = not self._head.shown or (self._target.row is None and self._target.length >= len(context) - 1)
        return self._head.follows(context) and seen

    def _read(self, context: Sequence[int]) -> Iterator[int]:
        """The target reads again what the head has not read: states that nobody handed over are kept nowhere."""
        if self.follows(context):
            return
        kept = self._head.reuse(context)
        self._target.commit(context, max(min(kept, len(context) - 2), 0))
        yield self._target.length
        for _ in read_together(self._target, self, context):
            yield self._target.length

    def commit(self, context: Sequence[int], hidden: mx.array | None = None) -> None:
        if hidden is not None:
            self._head.hand_over(context, hidden)

    def _first_logits(self, context: Sequence[int]) -> Scored:
        yield from ()  # nobody's runs with it
        self._shown = self._target.shown(len(context) - 1) if self._head.shown else None
        self._step = self._head.first(self._shown)
        self._known = self._head.known_logits(self._step, self._k)
        return self._known[:1]

    def _next_logits(self, token: mx.array) -> Scored:
        yield from ()
        assert self._step is not None
        self._known = self._known[1:]
        if self._known.shape[0]:
            return self._known[:1]
        self._step = self._head.next(token, self._step.carried, self._shown)
        return self._head.logits(self._step.scored)


def make_network(parts: Parts) -> Drafter | None:
    """The drafter of the pair's draft, a model or a head; None where the pair has none."""
    match parts.draft:
        case TranslatedModel():
            return TranslatedDrafter(parts.draft, parts.target.vocab_size, parts.rule)
        case CachedHead():
            return HeadDrafter(parts.draft, parts.target, parts.rule)
        case CachedModel():
            return ModelDrafter(parts.draft, parts.target.vocab_size, parts.rule)
    return None
