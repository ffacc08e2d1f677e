"""What passes cost: a plain step of decoding, and passes over several rows. The clock is read after `eval`.

mlx builds a graph lazily on the host, and `async_eval` then encodes it; it returns early, or, while more than about ten
command buffers are in flight, late (mlx/transforms.cpp, MAX_ACTIVE_TASKS). So the parts of a pass are timed apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.draft import NO_TOKENS, NOTHING
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock, read_back
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
        packed = read_back(NOTHING, logits[-1:], verdict)
        device.queue(packed)
        return verdict.next[None], packed

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


# On both sides of every change of kernel that mlx's quantized.cpp has for few rows: 5 to 6, 10 to 11, 12 to 13.
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 13, 16, 32)


@dataclass(frozen=True, slots=True)
class RowCost:
    """Medians over `passes` of a pass over `rows` rows; `total_seconds` runs from before the graph is built.

    `fastest_seconds` is the least total: far below the median, the machine was busy.
    """

    rows: int
    build_seconds: float
    queue_seconds: float
    total_seconds: float
    fastest_seconds: float
    passes: int


def row_costs(
    model: CachedModel,
    context_tokens: int,
    rows: Sequence[int],
    passes: int,
    clock: Clock,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[RowCost]:
    """A RowCost for each of `rows` after `context_tokens`; of fewer passes, or none, if cancelled.

    Row counts take turns, so that a busy second slows one pass of each and no median. The first turn, which compiles
    kernels, does not count. Tokens differ from row to row: experts make equal rows cheaper than those of a text. What
    was read before is forgotten.
    """
    context = varied_tokens(context_tokens + 1, model.vocab_size)
    timed: dict[int, list[tuple[float, float, float]]] = {count: [] for count in rows}
    model.forget()
    for turn in range(passes + 1):
        for count in rows:
            for _ in model.prefill(context):  # all of it at first; later what a rollback could not keep
                if cancelled():
                    break
            if cancelled():
                break
            found = _time_pass(model, context, count, clock)
            if turn:
                timed[count].append(found)
    model.forget()
    return [_cost(count, found) for count, found in timed.items() if found]


def _cost(rows: int, found: Sequence[tuple[float, float, float]]) -> RowCost:
    build, queue, total = zip(*found, strict=True)
    return RowCost(rows, median(build), median(queue), median(total), min(total), len(found))


def _time_pass(model: CachedModel, context: Sequence[int], rows: int, clock: Clock) -> tuple[float, float, float]:
    """(build, queue, total) seconds of one pass, which is taken back."""
    tokens = model.ids(varied_tokens(rows, model.vocab_size))
    device.wait(tokens)
    begin = clock()
    logits = model.extend(tokens)
    built = clock()
    device.queue(logits)
    queued = clock()
    device.wait(logits)
    end = clock()
    model.commit(context, len(context) - 1)
    return built - begin, queued - built, end - begin


def varied_tokens(count: int, vocab_size: int) -> list[int]:
    """`count` ids without a short period."""
    return [(7919 * at + 104_729) % vocab_size for at in range(count)]
