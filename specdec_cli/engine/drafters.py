"""Who guesses the next tokens. Law: a drafter may be wrong, slow or silent; it can never change the answer.

Letters: K drafted tokens, V vocabulary width. A new drafter is one class and one line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from specdec_cli.engine.model import CachedModel


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed tokens [K] on the device, not read back. Greedy drafts are one-hot: they carry no probabilities."""

    tokens: mx.array

    def __len__(self) -> int:
        return int(self.tokens.shape[0])


NOTHING = Draft(mx.array([], dtype=mx.int32))


class Drafter(Protocol):
    """Propose and feedback, after reading the prompt in interruptible steps."""

    name: str

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        """Read `context` ahead of the first proposal; yields the tokens read so far."""

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """At most `k` tokens that may follow `context`, queued on the device; fewer or none is legal."""

    def commit(self, context: Sequence[int]) -> None:
        """The round is over: `context` is the truth, whatever was proposed."""


class NoDrafter:
    """Plain decoding: never proposes."""

    name = "none"

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        yield from ()

    def propose(self, context: Sequence[int], k: int) -> Draft:
        return NOTHING

    def commit(self, context: Sequence[int]) -> None:
        return


class ModelDrafter:
    """A small model that decodes greedily ahead of the target.

    `width` is the target's V. The target is never cut to the draft: the draft's logits are cut to `width`, and
    context ids that the draft has no embedding for are fed as its last id (they only cost acceptance).
    """

    name = "model"

    def __init__(self, draft: CachedModel, width: int) -> None:
        self._draft = draft
        self._width = width

    def prefill(self, context: Sequence[int]) -> Iterator[int]:
        self._draft.reuse(context)
        yield from self._draft.prefill(context)

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """k draft passes, each token queued as soon as it is known to the device; nothing is read back."""
        logits = self._draft.logits(context, NOTHING.tokens)
        tokens: list[mx.array] = []
        while True:
            tokens.append(mx.argmax(logits[-1:, : self._width], axis=-1).astype(mx.int32))
            mx.async_eval(tokens[-1])
            if len(tokens) == k:
                break
            logits = self._draft.extend(tokens[-1])
        draft = Draft(mx.concatenate(tokens))
        # An event of its own, so that the loop can wait for the draft alone.
        mx.async_eval(draft.tokens)
        return draft

    def commit(self, context: Sequence[int]) -> None:
        # All emitted tokens but the last were this drafter's own, so what it has read of them stays.
        self._draft.commit(context, len(context) - 1)
