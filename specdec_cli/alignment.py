"""Which token each part of a printed text is from (pure). Law: the shares, joined, are the text that was fed.

Text lags behind its tokens: a stop string or an incomplete character holds it back. The pieces of single tokens need
not join to the text either: decoders drop a first space, skip special tokens, and spell a character by several tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key")
_PARTIAL = "\N{REPLACEMENT CHARACTER}"


class _Match(NamedTuple):
    """The waiting token at `place` is text[start:end]; `rest` of its piece has not come yet."""

    place: int
    start: int
    end: int
    rest: str = ""


class Alignment(Generic[Key]):
    """Shares out text, as it comes, among the tokens expected."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Key, str]] = []
        self._last: Key | None = None

    def expect(self, tokens: Iterable[tuple[Key, str]]) -> None:
        """These tokens come next: (key, piece)."""
        self._waiting += tokens

    def feed(self, text: str) -> list[tuple[Key | None, str]]:
        """The shares of `text`, in order. A token never named became no text; one with an empty share became part of
        a character that belongs to a later token.

        Text that no piece explains belongs to the last of the tokens that wait for theirs, else to the token after
        it, at the end to the one before it; None where there is none.
        """
        shares: list[tuple[Key | None, str]] = []
        at = 0
        while at < len(text) and (match := self._next(text, at)) is not None:
            if match.place and match.start > at:
                shares += self._share(match.place, text[at : match.start])
                at = match.start
            else:
                del self._waiting[: match.place]
            self._last, _ = self._waiting.pop(0)
            shares.append((self._last, text[at : match.end]))
            if match.rest:
                self._waiting.insert(0, (self._last, match.rest))
            at = match.end
        if at < len(text):
            # A token has at least one byte of a character that several spell.
            count = min(len(self._waiting), len(text[at:].encode("utf-8", "replace")))
            shares += self._share(count, text[at:])
        return shares

    def _next(self, text: str, at: int) -> _Match | None:
        """The next waiting token whose piece is found: not farther than the pieces before it are long."""
        reach = 0
        for place, (_, piece) in enumerate(self._waiting):
            reach += len(piece) + 1
            if not piece:
                continue
            if text.startswith(piece, at):
                return _Match(place, at, at + len(piece))
            if place == 0 and piece.startswith(text[at:]):
                return _Match(0, at, len(text), piece[len(text) - at :])
            bare = piece.lstrip(" ")
            if place == 0 and bare and text.startswith(bare, at):
                return _Match(0, at, at + len(bare))
            if _PARTIAL not in piece and piece.strip():
                found = text.find(piece, at, at + reach + len(piece))
                if found >= 0:
                    return _Match(place, found, found + len(piece))
        return None

    def _share(self, count: int, text: str) -> list[tuple[Key | None, str]]:
        """Gives `text` to the last of the first `count` waiting tokens, to the last named one if there are none."""
        keys = [key for key, _ in self._waiting[:count]]
        del self._waiting[:count]
        if keys:
            self._last = keys[-1]
        return [*((key, "") for key in keys[:-1]), (self._last, text)]
