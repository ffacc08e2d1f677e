"""What became of each token of a round, and which printed text it is (pure). Law: each drafted token is of one kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from specdec_cli.core.events import RoundDone


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

    @property
    def is_lost(self) -> bool:
        """Whether it is rejected or discarded."""
        return self.kind in (TokenKind.REJECTED, TokenKind.DISCARDED)


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
        self._waiting = deque[Judged]()

    def expect(self, done: RoundDone) -> None:
        """The tokens of a round; their text is fed after it. In a trace without `texts` the pieces stand for these."""
        own = iter(done.texts or [token.piece for token in tokens_of(done) if token.said])
        self._waiting += (token._replace(piece=next(own, "")) if token.said else token for token in tokens_of(done))

    def feed(self, text: str) -> list[Judged]:
        """The tokens that `text` is from. What was left out before it is skipped; what no token explains is plain."""
        found: list[Judged] = []
        skipped = max("".join(token.piece for token in self._waiting if token.said).find(text), 0)
        while text and self._waiting:
            token = self._waiting.popleft()
            if not token.said:
                found += [token] if token.is_lost else []
                continue
            piece, skipped = token.piece[skipped:], max(skipped - len(token.piece), 0)
            shown, text = text[: len(piece)], text[len(piece) :]
            found += [token._replace(piece=shown)] if shown else []
            if rest := piece[len(shown) :]:
                self._waiting.appendleft(token._replace(piece=rest))
        return [*found, Judged(TokenKind.PLAIN, text, True)] if text else found

    def rest(self) -> list[Judged]:
        """Unsaid tokens after the last text."""
        waiting, self._waiting = self._waiting, deque()
        return [token for token in waiting if token.is_lost]
