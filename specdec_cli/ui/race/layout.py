"""A lane's text on rows of cells (pure). Law: words keep their author and their time; blanks draw nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

from specdec_cli.ui.race.record import LaneRecord
from specdec_cli.ui.race.spans import Author

_WORDS: Final = re.compile(r"\n|[^\S\n]+|\S+")
_TAB: Final = 4


@dataclass(frozen=True, slots=True)
class Run:
    """Words of one round and one author on one row, from `column` on."""

    text: str
    author: Author
    seconds: float
    row: int
    column: int


def laid_out(lane: LaneRecord, width: int, prompt: str = "") -> list[Run]:
    """The lane's text after its `prompt`, broken at line breaks and, where too long, at blanks."""
    runs: list[Run] = []
    row = column = 0
    for text, author, seconds, word in _pieces(lane, prompt):
        if text == "\n":
            row, column = row + 1, 0
            continue
        if column and not text.isspace() and column + word > width and word <= width:
            row, column = row + 1, 0
        for part in _cut(text, width - column, width):
            if part.isspace():
                column = min(column + cell_len(part.replace("\t", " " * _TAB)), width)
                continue
            if column + cell_len(part) > width:
                row, column = row + 1, 0
            _append(runs, Run(part, author, seconds, row, column))
            column += cell_len(part)
    return runs


def _pieces(lane: LaneRecord, prompt: str) -> Iterator[tuple[str, Author, float, int]]:
    """(text, author, seconds, cells from here to the end of the word)."""
    found = [(text, Author.PROMPT, 0.0) for text in _WORDS.findall(prompt)]
    for done in lane.rounds:
        found += [(text, span.author, done.seconds) for span in done.spans for text in _WORDS.findall(span.text)]
    for place, (text, author, seconds) in enumerate(found):
        begins = place == 0 or found[place - 1][0].isspace()
        cells = 0
        for following, _, _ in found[place:] if begins and not text.isspace() else ():
            if following.isspace():
                break
            cells += cell_len(following)
        yield text, author, seconds, cells


def _cut(text: str, first: int, width: int) -> Iterator[str]:
    """`text` in parts of at most `width` cells; the first one fills its row only if the word is longer than any row."""
    if text.isspace() or cell_len(text) <= width:
        yield text
        return
    part, room = "", max(first, 1)
    for char in text:
        if part and cell_len(part + char) > room:
            yield part
            part, room = "", width
        part += char
    yield part


def _append(runs: list[Run], run: Run) -> None:
    """Adds the run, or extends the last one where it continues it after at most one blank."""
    last = runs[-1] if runs else None
    if last and (last.author, last.seconds, last.row) == (run.author, run.seconds, run.row):
        gap = run.column - last.column - cell_len(last.text)
        if 0 <= gap <= 1:
            runs[-1] = Run(last.text + " " * gap + run.text, run.author, run.seconds, run.row, last.column)
            return
    runs.append(run)
