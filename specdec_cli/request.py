"""What is asked of one reply. (pure) Law: a value that was not given is the target's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Request:
    """What one reply may cost, where it stops and how it is sampled.

    `k` is the draft length; 0 is plain decoding, `auto` chooses each round from measured costs and acceptance.

    `sampling` holds the values of `generation.BOUNDS` that were asked for; the others are the target's defaults.

    `attempt` counts further answers to one prompt: under a seed, each has noise of its own.
    """

    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    k: int | Literal["auto"] = "auto"
    drafter: str = "model"
    max_context: int | None = None
    rule: str = "auto"
    seed: int | None = None
    sampling: Mapping[str, float | None] = field(default_factory=dict)
    logit_bias: tuple[tuple[int, float], ...] = ()
    attempt: int = 0
