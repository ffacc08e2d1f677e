"""Rows between edges: the box of every panel. Each row has exactly the width that was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from specdec_cli.terminal.terminal import MUTED


def spread(left: Text, right: Text, width: int) -> Text:
    """`left` and `right` at the ends of a row; `left` is cut if both do not fit."""
    room = width - right.cell_len - 1 if right else width
    if left.cell_len > room:
        left = left.copy()
        left.truncate(max(room, 0), overflow="ellipsis")
    return Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right)


def boxed(row: Text, width: int) -> Text:
    """A row between the sides of the box."""
    return Text.assemble(("│ ", MUTED), spread(row, Text(), width - 4), (" │", MUTED))


def edge(ends: str, lefts: Sequence[Text], rights: Sequence[Text], width: int) -> Text:
    """A horizontal edge with words in it; the left ones are shortened first, then the right ones left out."""
    room = width - 9  # ends, dashes and spaces around both
    pairs = [(left, right) for right in rights for left in lefts]
    left, right = next((pair for pair in pairs if pair[0].cell_len + pair[1].cell_len <= room), (lefts[-1], Text()))
    left = left.copy()
    left.truncate(room, overflow="ellipsis")
    words = [Text.assemble(" ", end, " ") if end else Text() for end in (left, right)]
    dashes = "─" * (width - 4 - words[0].cell_len - words[1].cell_len)
    return Text.assemble((f"{ends[0]}─", MUTED), words[0], (dashes, MUTED), words[1], (f"─{ends[1]}", MUTED))


def shortened(text: str, longest: int) -> str:
    """`text` in at most `longest` cells, its end replaced by … where it is longer."""
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip(" ") + "…"
