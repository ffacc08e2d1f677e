"""What became of each token of a round. (pure)"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from specdec_cli.events import RoundDone


class Fate(StrEnum):
    """The value is its name in exports."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"


def fates(done: RoundDone) -> Iterator[tuple[Fate, str]]:
    """(fate, text) in the order of the positions the tokens were meant for; the target's own comes last."""
    judged = done.round
    for place, piece in enumerate(done.pieces):
        lost = Fate.REJECTED if place == judged.accepted else Fate.DISCARDED
        yield (Fate.ACCEPTED if place < judged.accepted else lost), piece
    if len(judged.emitted) > judged.accepted:  # else a stop token among the accepted ended it before
        own = Fate.CORRECTION if judged.rejected is not None else Fate.BONUS
        yield (own if judged.draft else Fate.PLAIN), done.next_piece
