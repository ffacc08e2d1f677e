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
from specdec_cli.engine.drafters.pace import Pace
from specdec_cli.engine.sampling.acceptance import AcceptanceRule, Choice


class StepwiseDrafter(Drafter):
    """What it drafts comes from `_first_logits` and then, token by token, from `_next_logits`."""

    def __init__(self, rule: AcceptanceRule, pace: Pace | None = None) -> None:
        self._rule = rule
        self._pace = pace or Pace()
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
        first, self._started = self._started[1], None
        choices = self._steps(context, k, first)
        log_q = [choice.log_q for choice in choices if choice.log_q is not None]
        tokens = mx.concatenate([choice.token for choice in choices])
        # An event of its own, so that the loop can wait for the draft alone.
        device.queue(tokens)
        return Draft(tokens, mx.concatenate(log_q) if log_q else None, self.name)

    def _steps(self, context: Sequence[int], k: int, first: Choice) -> list[Choice]:
        """`first` and those after it, at the pace that was found to be faster, or that is tried now."""
        trials = self._pace.trials(len(context), k)
        if trials is None:
            return self._queued(context, k, first, waits=False)
        if (untried := trials.untried) is None:
            return self._queued(context, k, first, trials.waiting_is_faster)
        device.wait(first.token)
        began = self._pace.clock()
        choices = self._queued(context, k, first, untried)
        device.wait(choices[-1].token)
        trials.seconds[untried].append((self._pace.clock() - began) / (k - 1))
        return choices

    def _queued(self, context: Sequence[int], k: int, first: Choice, waits: bool) -> list[Choice]:
        choices = [first]
        while len(choices) < k:
            logits = self._next_logits(choices[-1].token)
            ahead = [choice.token for choice in choices]
            choices.append(self._choose(logits, len(context), ahead, waits))
        return choices

    def _choose(self, logits: mx.array, position: int, ahead: list[mx.array], waits: bool = False) -> Choice:
        """Built while the step before runs; with `waits` queued only when that is done."""
        choice = self._rule.choose(logits, position + len(ahead), ahead)
        if waits:
            device.wait(ahead[-1])
        device.queue(choice.token)
        return choice

    def release(self) -> None:
        self._started = None
