"""What a pass costs on this machine. Law: evaluate before reading the clock, at the context length in question."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from specdec_cli.engine.decode import Clock
from specdec_cli.engine.model import CachedModel


def plain_step_seconds(target: CachedModel, context: Sequence[int], steps: int, clock: Clock) -> float:
    """Seconds per token of plain, pipelined decoding behind `context`, the mean of `steps`; rolled back afterwards."""
    begin = clock()
    token = mx.argmax(target.logits(context, mx.array([], dtype=mx.int32))[-1:], axis=-1)
    mx.async_eval(token)
    for _ in range(steps - 1):
        token = mx.argmax(target.extend(token)[-1:], axis=-1)
        mx.async_eval(token)
    mx.eval(token)
    seconds = (clock() - begin) / steps
    target.commit(context, len(context) - 1)
    return seconds
