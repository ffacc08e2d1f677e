"""What a plain step of decoding costs, and a pass. The clock is read after `eval`."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import NO_TOKENS, NOTHING
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock, queue_verdict
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


def plain_step_seconds(
    target: CachedModel, rule: AcceptanceRule, context: Sequence[int], steps: int, clock: Clock
) -> list[float]:
    """Seconds of each of `steps` steps of plain decoding after `context`, pipelined and read back as the loop's.

    They are rolled back after. What is in flight comes first: a reply may leave a pass that nobody reads. One more
    step, which feeds what the target has not read and wakes the device, is not counted. A full queue blocks the host in
    one step for another, so each is given the mean of all. `rule` chooses the tokens; it commits none of them.
    """
    device.settle()

    def enqueue(logits: mx.array, position: int, before: mx.array) -> tuple[mx.array, mx.array]:
        verdict = rule.judge(NOTHING, logits[-1:], position, before)
        packed, following = queue_verdict(target.network, NOTHING, logits[-1:], verdict)
        return following[None], packed

    token, packed = enqueue(target.logits(context, NO_TOKENS), len(context), NO_TOKENS)
    device.wait(packed)
    since = clock()
    token, packed = enqueue(target.extend(token), len(context) + 1, token)
    for step in range(2, steps + 2):
        before = packed
        if step <= steps:
            token, packed = enqueue(target.extend(token), len(context) + step, token)
        device.to_list(before)
    seconds = clock() - since
    target.commit(context, len(context) - 1)
    return [seconds / steps] * steps


def pass_seconds(target: CachedModel, rows: int, clock: Clock, passes: int = 3) -> float:
    """Seconds of the fastest of `passes` passes of `rows` rows, in a cache of their own; one more comes first."""
    fresh, took = target.fresh(), list[float]()
    for _ in range(passes + 1):
        began = clock()
        device.wait(fresh.forward(mx.zeros(rows, mx.int32)).logits)
        took.append(clock() - began)
    return min(took[1:])
