"""A small language model that decodes ahead of the target. Law: the target is never cut to the draft.

Letters: K drafted tokens, V the target's vocabulary size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import NO_TOKENS, Draft
from specdec_cli.engine.drafters.base import Drafter, Parts, Verified, no_drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, Choice
from specdec_cli.kinds import MODEL
from specdec_cli.request import MAX_UNREAD


class ModelDrafter(Drafter):
    """Draws its tokens as `rule` wants them drawn.

    The draft's logits are cut or padded to the target's `vocab_size`. Context ids that the draft has no embedding for
    are fed as its last id: they only cost acceptance.
    """

    name = MODEL.name

    def __init__(self, draft: CachedModel, vocab_size: int, rule: AcceptanceRule) -> None:
        self._draft = draft
        self._vocab_size = vocab_size
        self._rule = rule
        self._began = False
        self._started: tuple[int, Choice] | None = None

    def ready(self, context: Sequence[int]) -> bool:
        # Never before the first `prefill`: it finds what an earlier reply left of use, and marks where the prompt ends.
        return self._began and len(context) - 1 - self._draft.length < MAX_UNREAD

    def prefill(self, context: Sequence[int]) -> Iterator[object]:
        self._started = None
        if not self._began:
            self._draft.reuse(context)
        yield from self._draft.prefill(context)
        self._began = True

    def start(self, context: Sequence[int]) -> None:
        self._started = len(context), self._first(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """k draft passes, each token queued as soon as it is known to the device; nothing is read back."""
        started, self._started = self._started, None
        choice = started[1] if started and started[0] == len(context) else self._first(context)
        choices = [choice]
        while len(choices) < k:
            logits = self._draft.extend(choices[-1].token)
            choices.append(self._choose(logits, len(context), [choice.token for choice in choices]))
        log_q = [choice.log_q for choice in choices if choice.log_q is not None]
        tokens = mx.concatenate([choice.token for choice in choices])
        # An event of its own, so that the loop can wait for the draft alone.
        device.queue(tokens)
        return Draft(tokens, mx.concatenate(log_q) if log_q else None, self.name)

    def _first(self, context: Sequence[int]) -> Choice:
        return self._choose(self._draft.logits(context, NO_TOKENS), len(context), [])

    def _choose(self, logits: mx.array, position: int, ahead: list[mx.array]) -> Choice:
        choice = self._rule.choose(self._fit(logits[-1:]), position + len(ahead), ahead)
        device.queue(choice.token)
        return choice

    def _fit(self, logits: mx.array) -> mx.array:
        """[1, V]: what the draft's vocabulary has beyond the target's is cut off, what it lacks has no mass."""
        lacking = self._vocab_size - logits.shape[-1]
        if lacking > 0:
            return mx.pad(logits, [(0, 0), (0, lacking)], constant_values=-mx.inf)
        return logits[:, : self._vocab_size]

    def commit(self, verified: Verified) -> None:
        # All emitted tokens but the last were this drafter's own, so what it has read of them stays.
        self._draft.commit(verified.context, len(verified.context) - 1)

    def release(self) -> None:
        self._started = None
        self._draft.release()


def make(parts: Parts) -> Drafter:
    """The pair's draft, or nobody where it has none."""
    if parts.draft is None:
        return no_drafter(parts)
    return ModelDrafter(parts.draft, parts.target.vocab_size, parts.rule)
