"""The fate of each token of a round (pure). Law: every drafted token has exactly one."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from specdec_cli.events import RoundDone


class Fate(StrEnum):
    """A token's fate; the value is its name in exports."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DISCARDED = "discarded"
    CORRECTION = "correction"
    BONUS = "bonus"
    PLAIN = "plain"


def fates(done: RoundDone) -> Iterator[tuple[Fate, str]]:
    """(fate, text) by position in the draft; the target's token comes last."""
    judged = done.round
    for place, piece in enumerate(done.pieces):
        lost = Fate.REJECTED if place == judged.accepted else Fate.DISCARDED
        yield (Fate.ACCEPTED if place < judged.accepted else lost), piece
    if len(judged.emitted) > judged.accepted:  # else an accepted stop token ended the round
        own = Fate.CORRECTION if judged.rejected is not None else Fate.BONUS
        yield (own if judged.draft else Fate.PLAIN), done.next_piece
