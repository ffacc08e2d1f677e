"""The answer as rows of a terminal, coloured by the fate of its tokens. Law: colours add no character to the text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

from specdec_cli.fates import Fate
from specdec_cli.ui.terminal import TerminalFilter

GUESSED: Final = "green"
OWN: Final = "bold color(172)"
"""Green is the terminal's own. Amber is not: many terminals draw bold yellow in a bright one, unreadable on white.

Bold says the same without colour.
"""

ANSWER_STYLES: Final = {Fate.ACCEPTED: GUESSED, Fate.CORRECTION: OWN, Fate.BONUS: OWN, Fate.PLAIN: OWN}
_PARSED: Final = {fate: Style.parse(style) for fate, style in ANSWER_STYLES.items()}
_SYSTEMS: Final = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
_RESET: Final = "\x1b[0m"
_JOINER: Final = "\u200d"
_TAB: Final = 8

Codes = Mapping[Fate, str]
"""The control sequence that begins the colour of a fate."""


def codes(console: Console) -> Codes:
    """The colours of an answer on this console; none where it shows no colour."""
    system = _SYSTEMS.get(console.color_system or "")
    if system is None or console.no_color:
        return {}
    return {fate: _fresh(style).render("\0", color_system=system).partition("\0")[0] for fate, style in _PARSED.items()}


def _fresh(style: Style) -> Style:
    """A copy that has never been rendered: a style keeps the codes of the first colour system that it met."""
    return Style(color=style.color, bold=style.bold)


class Unfinished:
    """The last, growing line of the answer; a row is complete as soon as no later text can change it."""

    __slots__ = ("_codes", "_fates", "_line")

    def __init__(self, codes: Codes | None = None) -> None:
        """Without `codes` complete rows are not coloured."""
        self._codes = codes or {}
        self._line = ""
        self._fates: list[Fate | None] = []

    def feed(self, text: str, width: int, fate: Fate | None = None) -> str:
        """The lines completed by `text`, word-wrapped at `width` cells, each with its newline."""
        self._append(text, fate)
        complete: list[tuple[int, int]] = []
        start = 0
        while (end := self._line.find("\n", start)) >= 0:
            rows, rest = folds(self._line, start, end, width)
            complete += [*rows, (rest, rest + len(_closed(self._line[rest:end], width)))]
            start = end + 1
        rows, rest = folds(self._line, start, len(self._line), width)
        shown = "".join(f"{self._painted(*row)}\n" for row in complete + rows)
        self._line, self._fates = self._line[rest:], self._fates[rest:]
        return shown

    @property
    def row(self) -> Text:
        """The unfinished row after the last `feed`, tabs as spaces."""
        shown, column = Text(), 0
        for fate, run in groupby(zip(self._line, self._fates, strict=True), lambda pair: pair[1]):
            text = ""
            for char, _ in run:
                cells = _cells(char, column)
                column += cells
                text += " " * cells if char == "\t" else char
            shown.append(text, fate and ANSWER_STYLES.get(fate))
        return shown

    def finish(self, width: int) -> str:
        """The rest as a complete line; nothing if the answer ended with a newline or was empty."""
        return self.feed("\n", width) if self._line else ""

    def _append(self, text: str, fate: Fate | None) -> None:
        """Marks of the character before them have its fate: between the two a terminal could not join them."""
        for char in text:
            joins = char == _JOINER or self._line[-1:] == _JOINER or unicodedata.category(char).startswith("M")
            self._fates.append(self._fates[-1] if joins and self._fates else fate)
            self._line += char

    def _painted(self, start: int, end: int) -> str:
        """These characters of the line, each run of one colour between its control sequences."""
        if not self._codes:
            return self._line[start:end]
        return "".join(self._runs(start, end))

    def _runs(self, start: int, end: int) -> Iterator[str]:
        for code, places in groupby(range(start, end), lambda place: self._code(self._fates[place])):
            text = "".join(self._line[place] for place in places)
            yield f"{code}{text}{_RESET}" if code else text

    def _code(self, fate: Fate | None) -> str:
        return self._codes.get(fate, "") if fate is not None else ""


class AnswerRows:
    """The answer as rows of a terminal: filtered, then wrapped."""

    def __init__(self, codes: Codes | None = None) -> None:
        self._filter = TerminalFilter()
        self._line = Unfinished(codes)

    def feed(self, text: str, width: int, fate: Fate | None = None) -> str:
        """The rows completed by `text`, each with its newline."""
        return self._line.feed(self._filter.feed(text), width, fate)

    @property
    def row(self) -> Text:
        """The growing row."""
        return self._line.row

    def finish(self, width: int) -> str:
        """The rest as complete rows."""
        return self._line.feed(self._filter.finish(), width) + self._line.finish(width)


def folds(line: str, start: int, end: int, width: int) -> tuple[list[tuple[int, int]], int]:
    """Cuts line[start:end] into rows of at most `width` cells, at spaces if possible: (full rows, start of the rest).

    Later text can still change the rest, which only trailing spaces may make too wide. Only spaces at cuts are lost.
    """
    rows: list[tuple[int, int]] = []
    while (cut := _cut(line, start, end, width)) is not None:
        rows.append((start, start + len(line[start:cut].rstrip(" "))))
        start = cut + (line[cut] == " ")
    return rows, start


def _cut(line: str, start: int, end: int, width: int) -> int | None:
    """The end of the row that begins at `start`: its last space after a word, else inside the word."""
    column, space = 0, None
    for index in range(start, end):
        column += _cells(line[index], column)
        if line[index] == " " and line[start:index].strip():
            space = index  # the space may exceed the width; what follows it decides
        elif column > width and index > start:
            return index if space is None else space
    return None


def _closed(rest: str, width: int) -> str:
    """The rest of an ended line, without spaces that would fold onto an empty row."""
    return rest.rstrip(" ") if cells(rest) > width else rest


def cells(row: str) -> int:
    """Columns that a row of the answer needs, tabs included."""
    column = 0
    for char in row:
        column += _cells(char, column)
    return column


def _cells(char: str, column: int) -> int:
    """Cells of the character at `column`; emoji count as a terminal that joins none of them draws them."""
    if char == "\t":
        return _TAB - column % _TAB
    return 1 if char == "\ufe0f" else cell_len(char)
