"""The words of a lane with who wrote them (pure). Law: the spans, joined, are the lane's text exactly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specdec_cli.events import Finish, RoundDone, Start
from specdec_cli.fates import Fate
from specdec_cli.trace import Reply
from specdec_cli.ui.export.tokens import coloured


class Author(StrEnum):
    """Who wrote a token; the value is its name in exports."""

    PROMPT = "prompt"
    GUESSED = "guessed"
    """By the draft, and confirmed by the target."""
    OWN = "own"
    """By the target."""


@dataclass(frozen=True, slots=True)
class Span:
    """Some text and whose it is."""

    text: str
    author: Author


def spans(start: Start, done: RoundDone, tail: str = "") -> tuple[Span, ...]:
    """The text of a round, and the `tail` that came with the finish event after it."""
    text = done.text + tail
    reply = Reply(start, rounds=(done,), end=Finish("stop", text, (), ""))
    return tuple(
        Span(token.text, Author.GUESSED if token.fate is Fate.ACCEPTED else Author.OWN)
        for token in coloured(reply)
        if token.said and token.text
    )
