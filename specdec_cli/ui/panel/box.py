"""The box around a panel (pure). Each row has exactly the width of the box."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from specdec_cli.ui.panel.rounds import spread
from specdec_cli.ui.terminal import MUTED


def edge(ends: str, lefts: Sequence[Text], rights: Sequence[Text], width: int) -> Text:
    """A horizontal edge with words in it; the left ones are shortened first, then the right ones left out."""
    room = width - 9  # ends, dashes and spaces around both
    pairs = [(left, right) for right in rights for left in lefts]
    left, right = next((pair for pair in pairs if pair[0].cell_len + pair[1].cell_len <= room), (lefts[-1], Text()))
    left = left.copy()
    left.truncate(room, overflow="ellipsis")
    words = [Text.assemble(" ", end, " ") if end else Text() for end in (left, right)]
    dashes = "─" * (width - 4 - words[0].cell_len - words[1].cell_len)
    edges = ((ends[0] + "─", MUTED), (dashes, MUTED), ("─" + ends[1], MUTED))
    return Text.assemble(edges[0], words[0], edges[1], words[1], edges[2])


def boxed(row: Text, width: int) -> Text:
    """A row between the sides of the box."""
    side = ("│", MUTED)
    return Text.assemble(side, " ", spread(row, Text(), width - 4), " ", side)
