"""Who guesses the next tokens. Law: a drafter may be wrong, slow or silent; it can never change the answer.

Letters: K drafted tokens, V vocabulary width. A new drafter is one class and one line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import mlx.core as mx

from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.model import REFED_TOKENS, CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


class Drafter(Protocol):
    """Propose and feedback, after reading what it has not read in interruptible steps."""

    name: str

    def unread(self, context: Sequence[int]) -> int:
        """Tokens of `context` that `prefill` would read now; 0 where the next proposal reads the rest by itself."""

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        """Read `context` ahead of a proposal; yields the tokens read so far."""

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """At most `k` tokens that may follow `context`, queued on the device; fewer or none is legal."""

    def commit(self, context: Sequence[int]) -> None:
        """The round is over: `context` is the truth, whatever was proposed."""

    def release(self) -> None:
        """Give memory back: nothing will be proposed for long. A later proposal reads everything again."""


class NoDrafter:
    """Plain decoding: never proposes."""

    name = "none"

    def unread(self, context: Sequence[int]) -> int:
        return 0

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        yield from ()

    def propose(self, context: Sequence[int], k: int) -> Draft:
        return NOTHING

    def commit(self, context: Sequence[int]) -> None:
        return

    def release(self) -> None:
        return


class ModelDrafter:
    """A small model that decodes ahead of the target, drawing its tokens as `rule` wants them drawn.

    `width` is the target's V. The target is never cut to the draft: the draft's logits are cut or padded to `width`,
    and context ids that the draft has no embedding for are fed as its last id (they only cost acceptance).
    """

    name = "model"

    def __init__(self, draft: CachedModel, width: int, rule: AcceptanceRule) -> None:
        self._draft = draft
        self._width = width
        self._rule = rule
        self._began = False

    def unread(self, context: Sequence[int]) -> int:
        unread = len(context) - 1 - self._draft.length
        # At first always: `prefill` finds out what an earlier reply left of use, and marks where the prompt ends.
        return unread if unread >= REFED_TOKENS else int(not self._began)

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        if not self._began:
            self._draft.reuse(context)
        yield from self._draft.prefill(context)
        self._began = True

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """k draft passes, each token queued as soon as it is known to the device; nothing is read back."""
        logits = self._draft.logits(context, NOTHING.tokens)
        tokens: list[mx.array] = []
        log_q: list[mx.array] = []
        while True:
            choice = self._rule.choose(self._fit(logits[-1:]), len(context) + len(tokens), tokens)
            mx.async_eval(choice.token)
            tokens.append(choice.token)
            if choice.log_q is not None:
                log_q.append(choice.log_q)
            if len(tokens) == k:
                break
            logits = self._draft.extend(tokens[-1])
        draft = Draft(mx.concatenate(tokens), mx.concatenate(log_q) if log_q else None, self.name)
        # An event of its own, so that the loop can wait for the draft alone.
        mx.async_eval(draft.tokens)
        return draft

    def _fit(self, logits: mx.array) -> mx.array:
        """[1, V]: what the draft's vocabulary has beyond the target's is cut off, what it lacks has no mass."""
        lacking = self._width - logits.shape[-1]
        if lacking > 0:
            return mx.pad(logits, [(0, 0), (0, lacking)], constant_values=-mx.inf)
        return logits[:, : self._width]

    def commit(self, context: Sequence[int]) -> None:
        # All emitted tokens but the last were this drafter's own, so what it has read of them stays.
        self._draft.commit(context, len(context) - 1)

    def release(self) -> None:
        self._draft.release()
