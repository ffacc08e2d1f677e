"""Which draft tokens stand. Law: whatever the draft was, the emitted tokens are the target's own.

Letters: K drafted tokens, V vocabulary width. A new rule is one class and one line in RULES.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from specdec_cli.engine.drafters import Draft


@dataclass(frozen=True, slots=True)
class Verdict:
    """Both scalars stay on the device: how many draft tokens stand, and the target's token behind them."""

    accepted: mx.array
    next: mx.array


class AcceptanceRule(Protocol):
    """Judges one draft."""

    name: str

    def judge(self, draft: Draft, logits: mx.array) -> Verdict:
        """`logits` [K + 1, V] are the target's after the context and after each draft token."""


class Greedy:
    """Temperature 0: a draft token stands while it equals the target's argmax; `next` is the first that differs."""

    name = "greedy"

    def judge(self, draft: Draft, logits: mx.array) -> Verdict:
        targets = mx.argmax(logits, axis=-1).astype(mx.int32)
        stands = mx.cumprod((draft.tokens.astype(mx.int32) == targets[:-1]).astype(mx.int32))
        accepted = mx.sum(stands)
        return Verdict(accepted, targets[accepted])


RULES: dict[str, AcceptanceRule] = {"greedy": Greedy()}
