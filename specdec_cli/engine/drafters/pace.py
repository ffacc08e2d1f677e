"""How far a draft may run ahead of its device. Law: pace costs or gains time; it never changes a token.

A step that is queued while the one before is in flight cannot write into its caches in place: that step's attention
still holds them, and mlx copies every layer's keys and values whole (mlx #1858; mlx/backend/metal/eval.cpp keeps a
step's buffers until its command buffer is done). Waiting costs a wake-up of the host instead. Which is less depends on
the chip, the draft and the context, so both are tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from specdec_cli.engine import device

# A shorter cache is copied faster than a host wakes up.
SHORTEST_CONTEXT = 512
TRIALS = 2  # of each way, for every doubling of the context
LEAST_GAIN = 0.03


@dataclass(slots=True)
class Trials:
    """Seconds of a step by whether it waited for the one before."""

    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})

    @property
    def untried(self) -> bool | None:
        """The way to try next, None when both were tried often enough."""
        way = min(self.seconds, key=lambda waits: len(self.seconds[waits]))
        return way if len(self.seconds[way]) < TRIALS else None

    @property
    def waiting_is_faster(self) -> bool:
        return min(self.seconds[True]) < (1 - LEAST_GAIN) * min(self.seconds[False])


class Pace:
    """Of one conversation's draft: does each step wait for the one before? Learned while it drafts."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._trials: dict[int, Trials] = {}

    def trials(self, context_tokens: int, k: int) -> Trials | None:
        """The trials that hold for a draft of `k` tokens; None where it need never wait."""
        if k < 2 or context_tokens < SHORTEST_CONTEXT or not device.queues_ahead():
            return None
        return self._trials.setdefault(context_tokens.bit_length(), Trials())
