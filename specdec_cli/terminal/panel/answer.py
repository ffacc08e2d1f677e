"""The answer as rows of a terminal, coloured by kinds of tokens. Law: colours add no character to the text."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len
from rich.text import Text

from specdec_cli.core.events import RoundDone
from specdec_cli.core.judged import TokenKind, TokenStream
from specdec_cli.terminal.terminal import TerminalFilter, safe

GUESSED: Final = "color(29)"
OWN: Final = "bold color(98)"
"""Green and violet. These few of a terminal's 256 colours have a contrast of 4.5 on white and on black alike.

Bold and strike-through say the same without colour.
"""

ANSWER_STYLES: Final = {
    TokenKind.ACCEPTED: GUESSED,
    TokenKind.CORRECTION: OWN,
    TokenKind.BONUS: OWN,
    TokenKind.PLAIN: OWN,
    TokenKind.REJECTED: "color(131) strike",
    TokenKind.DISCARDED: "color(243)",
}
MARKS: Final = {
    TokenKind.ACCEPTED: "✓",
    TokenKind.REJECTED: "✗",
    TokenKind.DISCARDED: "·",
    TokenKind.CORRECTION: "↳",
    TokenKind.BONUS: "★",
}
"""Of the panel and of pictures. What was decoded plainly has none."""

MEANINGS: Final = {
    TokenKind.ACCEPTED: "drafted, and the target agreed",
    TokenKind.CORRECTION: "the target's own token in place of a rejected one",
    TokenKind.BONUS: "the target's own token after a fully accepted draft",
    TokenKind.PLAIN: "the target's own token where nothing was drafted",
    TokenKind.REJECTED: "drafted, and the target disagreed: not said",
    TokenKind.DISCARDED: "drafted after a rejected token, never judged: not said",
}
"""What a picture and a page say of each."""


def name_of(kind: TokenKind) -> str:
    """As people read it; events and files have the kind itself."""
    return "not judged" if kind is TokenKind.DISCARDED else str(kind)


_TAB: Final = 8


class AnswerRows:
    """The answer as rows of a terminal: filtered, tabs as spaces, word-wrapped; only the last row still grows."""

    def __init__(self) -> None:
        self._filter = TerminalFilter()
        self._line = Text()

    def feed(self, text: str, width: int, style: str | None = None) -> list[Text]:
        """The rows completed by `text`, each of at most `width` cells: no later text changes them."""
        return self._grow(self._filter.feed(text), width, style)

    @property
    def row(self) -> Text:
        """The growing row after the last `feed`."""
        return self._line

    def finish(self, width: int) -> list[Text]:
        """The rest as complete rows; none if the answer ended with a newline or was empty."""
        rows = self._grow(self._filter.finish(), width, None)
        return [*rows, *self._grow("\n", width, None)] if self._line else rows

    def _grow(self, text: str, width: int, style: str | None) -> list[Text]:
        first, *others = text.split("\t")
        self._append(first, style)
        for part in others:
            column = cells(self._line.plain.rpartition("\n")[2])
            self._append(" " * (_TAB - column % _TAB) + part, style)
        *ended, last = self._line.split("\n", allow_blank=True)
        complete: list[Text] = []
        for line in ended:
            rows, rest = folds(line.plain, 0, len(line), width)
            end = line.plain[rest:]  # spaces that would fold onto an empty row are left out
            rows.append((rest, rest + len(end.rstrip(" ") if cells(end) > width else end)))
            complete += [line[start:stop] for start, stop in rows]
        rows, rest = folds(last.plain, 0, len(last), width)
        self._line = last[rest:]
        return [*complete, *(last[start:stop] for start, stop in rows)]

    def _append(self, text: str, style: str | None) -> None:
        """A run of one style is one span: between two spans a terminal could not join a character and its marks."""
        spans, before = self._line.spans, len(self._line)
        self._line.append(text)
        if style and spans and spans[-1].end == before and spans[-1].style == style:
            before = spans.pop().start
        if style:
            self._line.stylize(style, before)


class AnswerText:
    """What a reply said, as rows of any width after any of its rounds; while both only grow, no row is made twice."""

    def __init__(self, coloured: bool, prompt: str = "") -> None:
        """A `prompt` that the answer continues comes first, dim."""
        self._coloured, self._tokens, self._filter = coloured, TokenStream(), TerminalFilter()
        self._said: list[tuple[str, str | None]] = [(safe(prompt), "dim")]
        self._ends = [1]  # by rounds: how much was said
        self._width = self._fed = 0

    def add(self, done: RoundDone) -> None:
        """One more round."""
        self._tokens.expect(done)
        self._say(done.text)
        self._ends.append(len(self._said))

    def end(self, tail: str) -> None:
        """What was held back until the end belongs to the last round."""
        self._say(tail)
        self._said.append((self._filter.finish(), OWN if self._coloured else None))
        self._ends[-1] = len(self._said)

    def upto(self, rounds: int, width: int) -> list[Text]:
        """The rows after so many rounds; the last one may be empty, and still grows."""
        end = self._ends[rounds]
        if width != self._width or end < self._fed:
            self._rows, self._complete, self._width, self._fed = AnswerRows(), list[Text](), width, 0
        for text, style in self._said[self._fed : end]:
            self._complete += self._rows.feed(text, width, style)
        self._fed = end
        return [*self._complete, self._rows.row]

    def _say(self, text: str) -> None:
        for token in self._tokens.feed(text):
            if token.said:
                style = ANSWER_STYLES[token.kind] if self._coloured else None
                self._said.append((self._filter.feed(token.piece), style))


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
        column += cells(line[index])
        if line[index] == " " and line[start:index].strip():
            space = index  # the space may exceed the width; what follows it decides
        elif column > width and index > start:
            return index if space is None else space
    return None


def cells(text: str) -> int:
    """Columns of `text`; emoji count as a terminal that joins none of them draws them."""
    return sum(1 if char == "\ufe0f" else cell_len(char) for char in text)
