"""What became of each token of a round, and which printed text it is (pure). Law: each drafted token is of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from specdec_cli.core.events import RoundDone

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


class TokenKind(StrEnum):
    """What became of a token; the value is its name in exports."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"


class Judged(NamedTuple):
    """A token of a round. `said`: it is part of the reply, unless a stop string or the decoder leaves it out."""

    kind: TokenKind
    piece: str
    said: bool


def tokens_of(done: RoundDone) -> Iterator[Judged]:
    """The round's tokens by position in the draft; the target's own comes last."""
    round = done.round
    for place, piece in enumerate(done.pieces):
        lost = TokenKind.REJECTED if place == round.accepted else TokenKind.DISCARDED
        # Tokens after an accepted stop token are not said.
        said = place < min(round.accepted, len(round.emitted))
        yield Judged(TokenKind.ACCEPTED if place < round.accepted else lost, piece, said)
    if len(round.emitted) > round.accepted:  # else an accepted stop token ended the round
        own = TokenKind.CORRECTION if round.rejected is not None else TokenKind.BONUS
        yield Judged(own if round.draft else TokenKind.PLAIN, done.next_piece, True)


class TokenStream:
    """Every token of a reply as its text comes, unsaid ones where they were proposed.

    Law: the pieces of the said tokens, joined, are the text. A token that became no text, such as a stop token, never
    comes, and one whose text comes in parts comes in parts.
    """

    def __init__(self) -> None:
        self._alignment: Alignment[int] = Alignment()
        self._tokens: list[Judged] = []
        self._past = 0

    def expect(self, done: RoundDone) -> None:
        """The tokens of a round; their text is fed after it."""
        first = len(self._tokens)
        self._tokens += tokens_of(done)
        new = enumerate(self._tokens[first:], first)
        self._alignment.expect((place, token.piece) for place, token in new if token.said)

    def feed(self, text: str) -> list[Judged]:
        """The tokens that `text` is from; what no token explains is plain."""
        found: list[Judged] = []
        for place, share in self._alignment.feed(text):
            if place is not None:
                found += self._unsaid(place)
            if share:
                found.append(Judged(TokenKind.PLAIN if place is None else self._tokens[place].kind, share, True))
        return found

    def rest(self) -> list[Judged]:
        """Unsaid tokens after the last text."""
        return self._unsaid(len(self._tokens))

    def _unsaid(self, end: int) -> list[Judged]:
        """The rejected and discarded tokens before place `end` that did not come yet."""
        tokens, self._past = self._tokens[self._past : end], max(self._past, end)
        return [token for token in tokens if token.kind in (TokenKind.REJECTED, TokenKind.DISCARDED)]
