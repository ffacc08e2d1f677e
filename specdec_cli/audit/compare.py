"""Answers against plain decoding's. Law: nothing is compared after the first difference, where the pasts differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specdec_cli.audit.divergence import Divergence, Token
from specdec_cli.engine.baseline import PlainStep
from specdec_cli.engine.rounding import KnownText, Position

Piece = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Compared:
    """How many tokens of an answer were compared, and the first that differs. Its limit is not known yet: 0."""

    tokens: int
    divergence: Divergence | None


def compare(
    prompt: Sequence[int], plain: Iterable[PlainStep], answers: Sequence[Sequence[int]], piece: Piece
) -> tuple[KnownText, list[Compared]]:
    """Plain decoding's answer to `prompt`, and each of `answers` compared with it. `piece` is the text of one token."""
    positions: list[Position] = []
    found: list[Compared | None] = [None] * len(answers)
    for at, step in enumerate(plain):
        positions.append(Position.of(step))
        for i, answer in enumerate(answers):
            if found[i] is None and answer[at : at + 1] != [step.token]:
                found[i] = _differs(at, step, answer, piece)
    text = KnownText(prompt, positions)
    return text, [one or _ended(len(positions), answer, piece) for one, answer in zip(found, answers, strict=True)]


def _differs(at: int, step: PlainStep, answer: Sequence[int], piece: Piece) -> Compared:
    """At `at` plain decoding takes `step`, and `answer` something else or nothing."""
    theirs = Token(step.token, piece(step.token))
    if at >= len(answer):
        return Compared(at + 1, Divergence(at, theirs, None, math.inf, 0.0))
    ours = Token(answer[at], piece(answer[at]))
    return Compared(at + 1, Divergence(at, theirs, ours, step.lead(answer[at]), 0.0))


def _ended(length: int, answer: Sequence[int], piece: Piece) -> Compared:
    """Plain decoding has ended after `length` tokens, all of which `answer` has."""
    if len(answer) == length:
        return Compared(length, None)
    ours = Token(answer[length], piece(answer[length]))
    return Compared(length + 1, Divergence(length, None, ours, math.inf, 0.0))
