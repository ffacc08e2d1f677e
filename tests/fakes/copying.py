"""A machine that copies text: drafters play on tokens, a draft model and lookups alike. (pure but for arrays, seeded)

The answer is a passage of the prompt with edits, so lookups find it; the draft model guesses each token with the rates
of a `Text`. Costs are those of a `Machine`, as in `machine.play`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import mlx.core as mx

from fakes.machine import Machine, Text
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.draft_length.fixed import DraftLength
from specdec_cli.engine.drafters.base import Drafter, Verified
from specdec_cli.events import Round
from specdec_cli.kinds import learns_from

# Words of the passage, and ids that stand nowhere but in an edit or in a wrong guess.
WORDS, NOVEL, WRONG = 2000, 10_000, -2


@dataclass(frozen=True)
class Copied:
    """A prompt, and the answer that copies its end: `edits` is the share of its tokens that were replaced."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def copied(tokens: int, seed: int, edits: float, before: int = 64) -> Copied:
    luck = random.Random(seed)
    passage = [luck.randrange(WORDS) for _ in range(tokens)]
    prompt = [*(luck.randrange(WORDS) for _ in range(before)), *passage, *passage[:2]]
    answer = [NOVEL + at if luck.random() < edits else token for at, token in enumerate(passage)]
    return Copied(tuple(prompt), tuple(answer[2:]))


class Guessing(Drafter):
    """A draft model that knows the answer, and is right as often as `text` says, by the position alone."""

    name = "model"

    def __init__(self, case: Copied, text: Text, seed: int) -> None:
        luck = random.Random(seed)
        self._case, self._text = case, text
        self._lots = [luck.random() for _ in case.answer]

    def propose(self, context: Sequence[int], k: int) -> Draft:
        at = len(context) - len(self._case.prompt)
        right = [self._lots[at + i] < self._text.rate(at + i, i + 1) for i in range(min(k, len(self._lots) - at))]
        found = [self._case.answer[at + i] if lucky else WRONG for i, lucky in enumerate(right)]
        return Draft(mx.array(found, dtype=mx.int32), drafter=self.name)


def play(machine: Machine, case: Copied, drafter: Drafter, length: DraftLength, seed: int) -> tuple[float, list[Round]]:
    """Seconds of the reply, as engine/decode.py runs it, and its rounds."""
    clock, context = random.Random(seed), list(case.prompt)
    rounds: list[Round] = []
    took, k, queued, unread = 0.0, 0, False, len(case.prompt)

    def cost(steps: float) -> float:
        return steps * machine.plain_seconds * exp(clock.gauss(0, machine.noise))

    while left := len(case.prompt) + len(case.answer) - len(context):
        draft = drafter.propose(context, k) if k else NOTHING
        by_model, n = learns_from(draft.drafter), len(draft)
        read_seconds = cost(machine.reading(unread)) if by_model else 0.0
        first = by_model and not any(learns_from(one.drafter) for one in rounds)
        draft_seconds = cost(n * machine.draft_step) if by_model else 0.0
        unread = 0 if by_model else unread
        verify_seconds = cost(machine.rows(n + 1) if n else 1.0 if queued else 1.0 + machine.restart)
        tokens = draft.tokens.tolist()
        at = len(context) - len(case.prompt)
        accepted = 0
        while accepted < n and accepted < left - 1 and tokens[accepted] == case.answer[at + accepted]:
            accepted += 1
        if not n:
            k = max(min(length.next(), left - 2), 0)
            queued = not k and left > 1
        emitted = case.answer[at : at + accepted + 1]
        context += emitted
        drafter.commit(Verified(context))
        unread += 0 if by_model else len(emitted)
        prefill_seconds = read_seconds if first else 0.0
        caught_up = 0.0 if first else read_seconds
        found = Round(
            len(rounds), draft.drafter, tuple(tokens), accepted, emitted[-1], emitted, draft_seconds + caught_up,
            verify_seconds, prefill_seconds,
        )  # fmt: skip
        rounds.append(found)
        took += found.draft_seconds + found.verify_seconds + prefill_seconds
        length.observe(found)
        if n:
            queued = False
            k = max(min(length.next(), left - len(emitted) - 1), 0)
    return took, rounds
