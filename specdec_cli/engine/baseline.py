"""mlx-lm's own `generate_step` as Rounds: the honest baseline, and the oracle our loop is tested against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step

from specdec_cli.engine.decode import Clock
from specdec_cli.events import Round


def baseline(
    network: nn.Module, context: Sequence[int], max_tokens: int, stop_tokens: frozenset[int], clock: Clock
) -> Iterator[Round]:
    """Greedy plain decoding by mlx-lm, one Round per token; `verify_seconds` is the time between tokens."""
    since = clock()
    steps = generate_step(mx.array(list(context)), network, max_tokens=max_tokens)
    for index, (token, _) in enumerate(steps):
        now = clock()
        token = int(token)
        yield Round(
            index=index,
            drafter="none",
            draft=(),
            accepted=0,
            next=token,
            emitted=(token,),
            draft_seconds=0.0,
            verify_seconds=now - since,
        )
        if token in stop_tokens:
            return
        since = clock()
