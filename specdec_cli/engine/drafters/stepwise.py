"""Drafts of one token after another. Law: each is drawn as the rule wants it drawn, and nothing is read back.

Letters: K drafted tokens, V the target's vocabulary size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, Choice


class StepwiseDrafter(Drafter):
    """What it drafts comes from `_first_logits` and then, token by token, from `_next_logits`."""

    def __init__(self, rule: AcceptanceRule) -> None:
        self._rule = rule
        self._started: tuple[int, Choice] | None = None

    @abstractmethod
    def _first_logits(self, context: Sequence[int]) -> mx.array:
        """[1, V] after `context`."""

    @abstractmethod
    def _next_logits(self, token: mx.array) -> mx.array:
        """[1, V] after one more drafted `token` [1]."""

    def start(self, context: Sequence[int]) -> None:
        self._started = len(context), self._choose(self._first_logits(context), len(context), [])

    def propose(self, context: Sequence[int], k: int) -> Draft:
        """k draft passes, each token queued as soon as it is known to the device; nothing is read back."""
        if not (self._started and self._started[0] == len(context)):
            self.start(context)
        assert self._started is not None
        choices, self._started = [self._started[1]], None
        while len(choices) < k:
            logits = self._next_logits(choices[-1].token)
            choices.append(self._choose(logits, len(context), [choice.token for choice in choices]))
        log_q = [choice.log_q for choice in choices if choice.log_q is not None]
        tokens = mx.concatenate([choice.token for choice in choices])
        # An event of its own, so that the loop can wait for the draft alone.
        device.queue(tokens)
        return Draft(tokens, mx.concatenate(log_q) if log_q else None, self.name)

    def _choose(self, logits: mx.array, position: int, ahead: list[mx.array]) -> Choice:
        choice = self._rule.choose(logits, position + len(ahead), ahead)
        device.queue(choice.token)
        return choice

    def release(self) -> None:
        self._started = None
