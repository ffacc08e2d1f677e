"""A reply as coloured tokens, for exports. Law: the said tokens, joined, are the reply's text exactly.

Rejected and discarded tokens appear where they were proposed, marked as not said. Invisible characters are drawn, so
that exports may contain foreign text after escaping it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from specdec_cli.events import RoundDone
from specdec_cli.fates import Alignment, Fate, fates
from specdec_cli.trace import Reply
from specdec_cli.ui.terminal import visible

GLYPHS: Final = {
    Fate.ACCEPTED: "",
    Fate.REJECTED: "✗",
    Fate.DISCARDED: "·",
    Fate.CORRECTION: "➜",
    Fate.BONUS: "★",
    Fate.PLAIN: "",
}
"""Drawn before the token; with underline and strike-through they show the fate without colour."""

MEANINGS: Final = {
    Fate.ACCEPTED: "drafted, and the target agreed",
    Fate.CORRECTION: "the target's own token in place of a rejected one",
    Fate.BONUS: "the target's own token after a fully accepted draft",
    Fate.PLAIN: "the target's own token where nothing was drafted",
    Fate.REJECTED: "drafted, and the target disagreed: not said",
    Fate.DISCARDED: "drafted after a rejected token, never judged: not said",
}

_KEPT: Final = frozenset(" \n\t\u200c\u200d") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class ColouredToken:
    """A token of round `index`. `said`: its text is part of the reply. `drafter` is empty for the target's own."""

    fate: Fate
    text: str
    said: bool
    index: int
    drafter: str = ""

    @property
    def shown(self) -> str:
        """The text without harmful characters; a said token keeps spaces and line breaks, others show signs."""
        return drawn(self.text) if self.said else "".join(map(_legal, visible(self.text)))

    @property
    def parts(self) -> tuple[str, str]:
        """`shown` in two parts with the glyph between them: after the space with which most words begin."""
        text = self.shown.lstrip(" ")
        return (self.shown[: -len(text)], text) if text and GLYPHS[self.fate] else ("", self.shown)


def coloured(reply: Reply) -> list[ColouredToken]:
    """Every token of the reply in order. A token without text in the reply, such as a stop token, is not said."""
    tokens = [token for done in reply.rounds for token in _tokens(done)]
    return list(_aligned(tokens, reply.finish.text))


def drawn(text: str) -> str:
    """`text` with line breaks, tabs and spaces unchanged, and controls and bidi tricks as visible signs."""
    return "".join(
        char if char in _KEPT or unicodedata.category(char).startswith("M") else "".join(map(_legal, visible(char)))
        for char in text
    )


def _legal(char: str) -> str:
    """U+FFFD for a noncharacter, which XML forbids."""
    return _REPLACED if ord(char) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF else char


def _tokens(done: RoundDone) -> Iterator[ColouredToken]:
    index, drafter, drafted = done.round.index, done.round.drafter, len(done.pieces)
    return (
        ColouredToken(fate, piece, said, index, drafter if place < drafted else "")
        for place, (fate, piece, said) in enumerate(fates(done))
    )


def _aligned(tokens: Sequence[ColouredToken], text: str) -> Iterator[ColouredToken]:
    """The tokens with their share of `text`; one without a share is not said."""
    alignment: Alignment[int] = Alignment()
    alignment.expect((place, token.text) for place, token in enumerate(tokens) if token.said)
    shares: dict[int | None, str] = {}
    for place, share in alignment.feed(text):
        shares[place] = shares.get(place, "") + share
    for place, token in enumerate(tokens):
        yield replace(token, text=shares[place]) if place in shares else replace(token, said=False)
