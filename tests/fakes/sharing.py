"""Runs several replies as a scheduler does, at the engine's level: some share their passes, at whatever moment."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specdec_cli.core.events import Round
from specdec_cli.engine.batch import Batch, Seat, Waiting
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule


@dataclass
class Reply:
    """One reply: what it decodes, and where it stands."""

    target: CachedModel
    drafters: Drafters
    rule: AcceptanceRule
    context: list[int]
    tokens: int
    cancels_after: int | None = None

    def begin(self, batch: Batch) -> None:
        self.seat, self.waits, self.ended, self.rounds = Seat(batch), False, False, list[Round]()
        deque_of(self.target.prefill(self.context))
        self._steps: Iterator[object] = decode(
            self.target, self.drafters, self.rule, self.context, self.tokens, frozenset(), time.perf_counter,
            lambda: self.cancels_after is not None and len(self.rounds) >= self.cancels_after, seat=self.seat,
        )  # fmt: skip

    def go_on(self) -> None:
        """Up to its next round or wait."""
        for step in self._steps:
            self.waits = isinstance(step, Waiting)
            if isinstance(step, Round):
                self.rounds.append(step)
            return
        self.ended, self.waits = True, False


def deque_of(steps: Iterator[object]) -> None:
    for _ in steps:
        pass


def run_together(batch: Batch, replies: Sequence[Reply], seed: int, ahead: bool = True) -> int:
    """All of `replies` to their ends; who comes, joins and leaves when is drawn. Returns the passes that were shared."""
    chance, waiting, running, shared = random.Random(seed), list(replies), list[Reply](), 0
    while waiting or running:
        if waiting and (not running or chance.random() < 0.4):
            reply = waiting.pop(0)
            reply.begin(batch)
            running.append(reply)
        for reply in running:
            reply.seat.wanted = reply.seat.wanted != (chance.random() < 0.15)
        alone = [reply for reply in running if not reply.waits]
        if alone and chance.random() < 0.8:
            chance.choice(alone).go_on()
        elif members := [reply for reply in running if reply.waits]:
            shared += 1
            cycle(batch, members, chance.random() < 0.5 and ahead)
        running = [reply for reply in running if not reply.ended]
    return shared


def cycle(batch: Batch, members: Sequence[Reply], ahead: bool) -> None:
    """A pass of all that wait; `ahead`: with the next one queued before this one is read."""
    batch.run()
    members = [reply for reply in members if reply.seat.queued]
    for reply in members:
        reply.go_on()  # its verdict is queued
    going_on = [reply for reply in members if reply.waits]
    if ahead and len(going_on) == len(batch):
        for reply in going_on:
            reply.seat.wanted = True
        batch.run()
    for reply in going_on:
        reply.go_on()  # it reads
        while not (reply.waits or reply.ended):
            if not reply.seat.wanted:
                break
            reply.go_on()
