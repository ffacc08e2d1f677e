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
from specdec_cli.trace import Reply
from specdec_cli.ui.fates import Fate, fates
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
    """A token of round `index`. `said`: its text is part of the reply."""

    fate: Fate
    text: str
    said: bool
    index: int

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
    """The round's tokens; accepted ones after a stop token are not said."""
    judged = done.round
    for place, (fate, piece) in enumerate(fates(done)):
        own = place >= len(judged.draft)
        said = own or place < min(judged.accepted, len(judged.emitted))
        yield ColouredToken(fate, piece, said, judged.index)


def _aligned(tokens: Sequence[ColouredToken], text: str) -> list[ColouredToken]:
    """The tokens with their share of `text`: the pieces of single tokens need not join to the decoded text.

    A character spelled by several tokens belongs to the last of them. Text that no piece explains belongs to the token
    before it, at the beginning to the first token.
    """
    aligned: list[ColouredToken] = []
    waiting: list[ColouredToken] = []
    at = 0
    for token in tokens:
        waiting.append(token)
        reach = sum(len(held.text) + 1 for held in waiting if held.said)
        found = _find(token.text, text, at, reach) if token.said else None
        if found is None:
            continue
        end = found + len(token.text)
        if any(held.said for held in waiting[:-1]):
            aligned += _shared(waiting[:-1], text[at:found])
            at = found
        else:
            aligned += waiting[:-1]
        aligned.append(replace(token, text=text[at:end]))
        at, waiting = end, []
    if not any(token.said for token in waiting):
        last = max((place for place, token in enumerate(aligned) if token.said), default=len(aligned))
        aligned, waiting = aligned[:last], aligned[last:] + waiting
        at -= sum(len(token.text) for token in waiting if token.said)
    return [*aligned, *_shared(waiting, text[at:])]


def _find(piece: str, text: str, at: int, reach: int) -> int | None:
    """The index of the piece, from `at` up to `reach` after it; None for a piece that is no text by itself."""
    if text.startswith(piece, at) and piece:
        return at
    if not piece or _REPLACED in piece or not piece.strip():
        return None
    found = text.find(piece, at, at + reach + len(piece))
    return None if found < 0 else found


def _shared(waiting: Sequence[ColouredToken], text: str) -> Iterator[ColouredToken]:
    """Gives `text` to the last said token of those waiting; the others keep their piece and are not said."""
    last = max((place for place, token in enumerate(waiting) if token.said), default=None)
    for place, token in enumerate(waiting):
        if place == last and text:
            yield replace(token, text=text)
        elif token.said and text and place != last:
            yield replace(token, text="")  # part of a character that belongs to a later token
        else:
            yield replace(token, said=False)
