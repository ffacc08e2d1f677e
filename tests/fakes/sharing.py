"""Runs several replies as a scheduler does, at the engine's level: some share their passes, from and to any round."""

import random
import time
from collections.abc import Sequence

from specdec_cli.core.events import Round
from specdec_cli.engine.batch import Batch, Member, Part
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.base import DraftStep, read_together
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
        self.asks: Part | DraftStep | None = None
        self.ended = False
        self._drafters, self._rule, self._tokens, self._last = drafters, rule, tokens, cancelled_after

    def begin(self, batch: Batch) -> None:
        """Its prompt is read, and nothing decoded yet."""
        self.target.reuse(self.context)
        self.target.commit(self.context, min(self.target.length, self._drafters.keeps(self.context)))
        for _ in read_together(self.target, self._drafters.drafter, self.context):
            pass
        self.member = Member(batch)
        self._steps = decode(
            self.target, self._drafters, self._rule, self.context, self._tokens, frozenset(), time.perf_counter,
            lambda: len(self.rounds) >= self._last, member=self.member,
        )  # fmt: skip

    def go_on(self) -> None:
        """Up to its next round, to what it asks for, or to its end."""
        step = next(self._steps, None)
        self.asks, self.ended = step if isinstance(step, Part | DraftStep) else None, step is None
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
            running[-1].member.shares = True
        for reply in running:
            if chance.random() < 0.15:
                reply.member.shares = chance.random() < 0.75
        alone = [reply for reply in running if not reply.asks]
        if alone and chance.random() < 0.8:
            chance.choice(alone).go_on()
        elif drafting := [reply for reply in running if isinstance(reply.asks, DraftStep)]:
            batch.answer([reply.asks for reply in drafting if reply.asks])
            for reply in drafting:
                reply.go_on()
        elif asking := [reply for reply in running if reply.asks]:
            share(batch, asking, chance.random() < 0.5)
        running = [reply for reply in running if not reply.ended]
    return sum(round.batch_size > 1 for reply in replies for round in reply.rounds)


def share(batch: Batch, asking: Sequence[Reply], ahead: bool) -> None:
    """A pass of all who ask; `ahead`: all share the next one, so that it is queued at once if nobody drafts."""
    for reply in asking:
        reply.member.shares |= ahead
    errors = batch.answer([reply.asks for reply in asking if reply.asks])
    for reply in asking:
        if reply.asks in errors:
            if error := errors[reply.asks]:
                raise error
            reply.go_on()  # it reads
            while reply.member.shares and not (reply.asks or reply.ended):
                reply.go_on()
