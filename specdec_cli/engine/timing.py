"""Measured costs of passes and rounds. Law: evaluate before reading the clock, at the context in question.

Letters: K drafted tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import ClassVar

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.decode import decode, rounds_of
from specdec_cli.engine.draft import NO_TOKENS, NOTHING, Draft
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.pipeline import Clock, read_back
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.events import Round

# Plain rounds measured beside the drafted ones, after a first one that nothing was queued for.
PLAIN_ROUNDS = 5
NO_STOPS: frozenset[int] = frozenset()


def plain_step_seconds(
    target: CachedModel, rule: AcceptanceRule, context: Sequence[int], steps: int, clock: Clock
) -> list[float]:
    """Seconds of each of `steps` steps of plain decoding after `context`, pipelined and read back as the loop's.

    They are rolled back after. What is in flight comes first: a reply may leave a pass that nobody reads. One more
    step, which feeds what the target has not read and wakes the device, is not counted. A full queue blocks the host in
    one step for another, so each is given the mean of all. `rule` chooses the tokens; it commits none of them.
    """
    device.settle()

    def queued(logits: mx.array, position: int, before: mx.array) -> tuple[mx.array, mx.array]:
        verdict = rule.judge(NOTHING, logits[-1:], position, before)
        packed = read_back(NOTHING, logits[-1:], verdict)
        device.queue(packed)
        return verdict.next[None], packed

    token, packed = queued(target.logits(context, NO_TOKENS), len(context), NO_TOKENS)
    device.wait(packed)
    since = clock()
    token, packed = queued(target.extend(token), len(context) + 1, token)
    for step in range(2, steps + 2):
        before = packed
        if step <= steps:
            token, packed = queued(target.extend(token), len(context) + step, token)
        device.to_list(before)
    seconds = clock() - since
    target.commit(context, len(context) - 1)
    return [seconds / steps] * steps


@dataclass(frozen=True, slots=True)
class RoundCost:
    """A real round of K = `k`, and the plain rounds nearest to it."""

    k: int
    draft_seconds: float
    verify_seconds: float
    plain_seconds: float


class RepeatDrafter(Drafter):
    """Drafts the end of the context once more: as many tokens as asked for, at no cost, right or wrong."""

    name = "repeat"

    def propose(self, context: Sequence[int], k: int) -> Draft:
        return Draft(mx.array(list(context[-k:]), dtype=mx.int32), drafter=self.name)


class Scheduled:
    """A DraftLength given beforehand, one K a round; 0 after its end."""

    resting: ClassVar[bool] = False
    reason: ClassVar[str] = ""

    def __init__(self, ks: Sequence[int]) -> None:
        self._ks = iter(ks)

    def next(self) -> int:
        return next(self._ks, 0)

    def lookup_k(self, rates: list[float]) -> int:
        return 0

    def observe(self, round: Round) -> None:
        return


def round_costs(
    target: CachedModel,
    drafter: Drafter,
    rule: AcceptanceRule,
    context: Sequence[int],
    ks: Sequence[int],
    repeats: int,
    clock: Clock,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[RoundCost]:
    """Real rounds of each K of `ks` after `context`, in their order, plain rounds before each turn; `repeats` turns.

    The loop itself is timed, so that its own cost counts. A round of K = 1 that does not count lets the draft catch up
    with the plain ones.
    """
    turn = [*[0] * PLAIN_ROUNDS, 1, *ks]
    # One short: the loop's first round is plain anyway.
    script = Scheduled(list(chain.from_iterable([turn] * repeats))[1:])
    tokens = repeats * (sum(ks) + len(ks) + PLAIN_ROUNDS + 2) + 2
    found: list[RoundCost] = []
    plain: list[float] = []
    before = None
    for round in rounds_of(decode(target, drafter, rule, script, list(context), tokens, NO_STOPS, clock, cancelled)):
        k = len(round.draft)
        if k == 0:
            if before != 0:
                plain = []
            else:
                plain.append(round.verify_seconds)
        elif before:
            found.append(RoundCost(k, round.draft_seconds, round.verify_seconds, median(plain)))
        before = k
        if len(found) == repeats * len(ks):
            break
    return found
