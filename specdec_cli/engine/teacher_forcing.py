"""What a draft would come to in a text that is known already, and what rounds cost.

Law: at temperature 0 and under `coupled` the target's text does not depend on the draft, and a draft token stands iff
it is the text's own. A draft that guesses t_1 … t_j right has then read the very text, so whether token j + 1 stands is
a fact of the position alone: one pass of the draft over the text tells every K's rounds.
Letters: K drafted tokens, T tokens read at once, V the target's vocabulary width.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import ClassVar

import mlx.core as mx

from specdec_cli.engine.decode import Clock, decode
from specdec_cli.engine.device import ids
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter, ModelDrafter, NoDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import AcceptanceRule
from specdec_cli.events import Round

# T: logits of so many positions are held at once.
CHUNK_TOKENS = 64
# Plain rounds measured beside the drafted ones, behind a first one that nothing was queued for.
PLAIN_ROUNDS = 5
NO_STOPS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RoundCost:
    """A real round of K = `k`, and the plain rounds nearest to it."""

    k: int
    draft_seconds: float
    verify_seconds: float
    plain_seconds: float


class Reader(ModelDrafter):
    """The draft model, reading a text instead of writing one."""

    def agreements(self, prompt: Sequence[int], answer: Sequence[int]) -> Iterator[bool]:
        """For each token of `answer`: would the draft, having read everything before it, have said the same?"""
        deque(self.prefill(prompt), maxlen=0)
        for at in range(0, len(answer), CHUNK_TOKENS):
            chunk, context = answer[at : at + CHUNK_TOKENS], [*prompt, *answer[:at]]
            logits = self._draft.logits(context, mx.array(list(chunk[:-1]), dtype=mx.int32))
            said = []
            for row, token in enumerate(chunk):
                choice = self._rule.choose(self._fit(logits[row : row + 1]), len(context) + row, ())
                said.append(choice.token)
                self._rule.commit([token])
            for ours, token in zip(ids(mx.concatenate(said)), chunk, strict=True):
                yield ours == token
        whole = [*prompt, *answer]
        self._draft.commit(whole, len(whole) - 1)


def runs(agreements: Sequence[bool], deepest: int) -> list[int]:
    """[t] = how many tokens from t on agree without a gap, at most `deepest`."""
    found, behind = [0] * len(agreements), 0
    for at in reversed(range(len(agreements))):
        behind = min(behind + 1, deepest) if agreements[at] else 0
        found[at] = behind
    return found


def proposals(
    drafter: Drafter, prompt: Sequence[int], answer: Sequence[int], deepest: int
) -> tuple[list[int], list[int]]:
    """(drafted, accepted) of a round that begins at each token of `answer`, for a drafter that proposes at no cost."""
    drafted, accepted, context = [], [], list(prompt)
    for at, token in enumerate(answer):
        guess = ids(drafter.propose(context, deepest).tokens)
        agreeing = 0
        for ours, theirs in zip(guess, answer[at:], strict=False):
            if ours != theirs:
                break
            agreeing += 1
        drafted.append(len(guess))
        accepted.append(agreeing)
        context.append(token)
        drafter.commit(context)
    return drafted, accepted


class Parrot(NoDrafter):
    """Drafts the end of the context once more: as many tokens as asked for, at no cost, right or wrong."""

    name = "parrot"

    def propose(self, context: Sequence[int], k: int) -> Draft:
        return Draft(mx.array(list(context[-k:]), dtype=mx.int32), drafter=self.name)


class Script:
    """A DraftLength that was written beforehand; 0 behind its end."""

    resting: ClassVar[bool] = False
    why: ClassVar[str] = ""

    def __init__(self, ks: Sequence[int]) -> None:
        self._ks = iter(ks)

    def next(self) -> int:
        return next(self._ks, 0)

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
    """Real rounds of each K of `ks` behind `context`, in their order, plain rounds before each turn; `repeats` turns.

    The loop itself is timed, so that its own cost counts. A round of K = 1 that does not count lets the draft catch up
    with the plain ones.
    """
    turn = [*[0] * PLAIN_ROUNDS, 1, *ks]
    # One short: the loop's first round is plain anyway.
    script = Script(list(chain.from_iterable([turn] * repeats))[1:])
    room = repeats * (sum(ks) + len(ks) + PLAIN_ROUNDS + 2) + 2
    found: list[RoundCost] = []
    plain: list[float] = []
    behind = None
    for round in decode(target, drafter, rule, script, list(context), room, NO_STOPS, clock, cancelled):
        k = len(round.draft)
        if k == 0:
            if behind != 0:
                plain = []
            else:
                plain.append(round.verify_seconds)
        elif behind:
            found.append(RoundCost(k, round.draft_seconds, round.verify_seconds, median(plain)))
        behind = k
        if len(found) == repeats * len(ks):
            break
    return found
