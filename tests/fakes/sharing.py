"""Runs several replies as a scheduler does, at the engine's level: some share their passes, from and to any round."""

import random
import time
from collections.abc import Sequence

from specdec_cli.core.events import Round
from specdec_cli.engine.batch import Batch, Seat, Waiting
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.base import read_together
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


class Reply:
    """`tokens` tokens after `context`, which grows; it is cancelled after so many rounds, if after any."""

    def __init__(
        self,
        target: CachedModel,
        drafters: Drafters,
        rule: AcceptanceRule,
        context: Sequence[int],
        tokens: int,
        cancelled_after: float = float("inf"),
    ) -> None:
        self.target, self.context, self.rounds = target, list(context), list[Round]()
        self.waits = self.ended = False
        self._drafters, self._rule, self._tokens, self._last = drafters, rule, tokens, cancelled_after

    def begin(self, batch: Batch) -> None:
        """Its prompt is read, and nothing decoded yet."""
        self.target.reuse(self.context)
        self.target.commit(self.context, min(self.target.length, self._drafters.keeps(self.context)))
        for _ in read_together(self.target, self._drafters.drafter, self.context):
            pass
        self.seat = Seat(batch)
        self._steps = decode(
            self.target, self._drafters, self._rule, self.context, self._tokens, frozenset(), time.perf_counter,
            lambda: len(self.rounds) >= self._last, seat=self.seat,
        )  # fmt: skip

    def go_on(self) -> None:
        """Up to its next round or wait, or to its end."""
        step = next(self._steps, None)
        self.waits, self.ended = isinstance(step, Waiting), step is None
        if isinstance(step, Round):
            self.rounds.append(step)


def run_alone(reply: Reply, batch: Batch) -> list[int]:
    """Its context at its end."""
    reply.begin(batch)
    while not reply.ended:
        reply.go_on()
    return reply.context


def run_together(batch: Batch, replies: Sequence[Reply], seed: int) -> int:
    """All of `replies`, to their ends; who joins and leaves when is drawn. Returns how many rounds were shared."""
    chance, coming, running = random.Random(seed), list(replies), list[Reply]()
    while coming or running:
        if coming and (not running or chance.random() < 0.4):
            running.append(coming.pop(0))
            running[-1].begin(batch)
            running[-1].seat.wanted = True
        for reply in running:
            if chance.random() < 0.15:
                reply.seat.wanted = chance.random() < 0.75
        alone = [reply for reply in running if not reply.waits]
        if alone and chance.random() < 0.8:
            chance.choice(alone).go_on()
        elif waiting := [reply for reply in running if reply.waits]:
            share(batch, waiting, ahead=chance.random() < 0.5)
        running = [reply for reply in running if not reply.ended]
    return sum(round.batch_size > 1 for reply in replies for round in reply.rounds)


def share(batch: Batch, waiting: Sequence[Reply], ahead: bool) -> None:
    """A pass of all who wait; `ahead`: with the next one queued before it is read."""
    batch.run()
    sharers = [reply for reply in waiting if reply.seat.queued]
    for reply in sharers:
        reply.go_on()  # its verdict is queued
    sharers = [reply for reply in sharers if reply.waits]
    if ahead and len(sharers) == len(batch) and not any(reply.seat.drafts for reply in sharers):
        for reply in sharers:
            reply.seat.wanted = True
        batch.run()
    for reply in sharers:
        reply.go_on()  # it reads
        while reply.seat.wanted and not (reply.waits or reply.ended):
            reply.go_on()
