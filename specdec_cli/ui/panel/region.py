"""Append-only text above, a few live rows below. Law: one write for each refresh; a complete row is final.

rich's `Live` is not used: in a narrower window terminals fold the drawn rows in two, and `Live`, which counts the rows
it drew, does not erase their upper halves. `LiveRegion` counts how many rows its last frame occupies *now*.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from specdec_cli.ui.suspension import Suspension, in_background
from specdec_cli.ui.terminal import TerminalFilter, encodable

_SYNC, _UNSYNC = "\x1b[?2026h", "\x1b[?2026l"  # one picture, not a flicker; ignored where unknown
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"  # where terminal and rich disagree on a width, the row is cut, never folded
_ERASE_ROW, _ERASE_BELOW = "\x1b[2K", "\x1b[J"
_TAB: Final = 8


class LiveRegion:
    """Rows at the bottom of a terminal that are redrawn; the cursor stays at the start of the last one."""

    def __init__(self, console: Console, stream: TextIO, size: Callable[[], tuple[int, int]], folds: bool) -> None:
        """`size` gives (columns, rows) now; `folds` says whether this terminal folds rows when it gets narrower."""
        self._console = console
        self._stream = stream
        self._size = size
        self._folds = folds
        self._drawn: list[int] = []
        self._held = False
        self._suspension = Suspension(self.leave, self.forget)

    def draw(self, above: str, rows: Sequence[Text]) -> None:
        """Prints `above` (complete lines, already filtered) for good and `rows` (each one screen row) below it."""
        if in_background():  # the answer may go on there, but the screen is the shell's
            self._write(above)
            return
        width, _ = self._size()
        shown = f"{self._erasure(width)}{above}{_NO_WRAP}{self._ansi(rows, width)}\r{_WRAP}"
        # Before the write: after an interrupt in it the stream still flushes the rest, so all of it is drawn.
        self._drawn = [min(row.cell_len, width) for row in rows]
        self._held = True
        self._suspension.hold()
        self._write(f"{_SYNC}{_HIDE_CURSOR}{shown}{_UNSYNC}")

    def release(self, above: str, rows: Sequence[Text] = ()) -> None:
        """Prints `above` and a last frame for good and restores the terminal: cursor visible, on its own line."""
        if not (self._held or above or rows):
            return
        width, _ = self._size()
        frame = f"{_NO_WRAP}{self._ansi(rows, width)}\n" if rows else ""
        shown = f"{self._erasure(width)}{above}{frame}{_WRAP}{_SHOW_CURSOR}{_UNSYNC}"
        self._drawn = []
        self._held = False
        self._suspension.release()
        self._write(shown)

    def leave(self) -> None:
        """Erases the rows and shows the cursor: the shell takes over. The next `draw` draws them again."""
        width, _ = self._size()
        with suppress(OSError, ValueError):  # a closed terminal
            os.write(self._stream.fileno(), f"{self._erasure(width)}{_WRAP}{_SHOW_CURSOR}{_UNSYNC}".encode())
        self.forget()

    def forget(self) -> None:
        """Others wrote on the terminal: the rows drawn last are no longer where they were."""
        self._drawn = []

    def _ansi(self, rows: Sequence[Text], width: int) -> str:
        self._console.width = width  # rich would ask stdin, whose terminal may be another
        with self._console.capture() as capture:
            self._console.print(Text("\n").join(rows), end="", no_wrap=True, overflow="crop")
        return capture.get()

    def _erasure(self, width: int) -> str:
        """Erases all rows of the last frame, as folded at the present width, and moves to the first.

        Row by row: erasing from the top left corner down counts as clearing the screen, and then tmux and others
        first copy the whole frame into the scroll-back.
        """
        if not self._drawn or in_background():
            return ""
        folded = [max(1, -(-cells // width)) if self._folds else 1 for cells in self._drawn]
        below = _ERASE_BELOW if folded[-1] > 1 else ""
        return f"\r{below}{_ERASE_ROW}" + f"\x1b[A{_ERASE_ROW}" * sum(folded[:-1])

    def _write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))
        self._stream.flush()


def folds_rows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this terminal folds rows that became too wide (all the usual ones on a Mac) rather than cutting them."""
    term = environment.get("TERM", "")
    screen = term.startswith("screen") and "TMUX" not in environment
    return not (screen or term == "linux" or "XTERM_VERSION" in environment)


class Unfinished:
    """The last, growing line of the answer; a row is complete as soon as no later text can change it."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line = ""

    def feed(self, text: str, width: int) -> str:
        """The lines completed by `text`, word-wrapped at `width` cells, each with its newline."""
        *lines, self._line = (self._line + text).split("\n")
        complete: list[str] = []
        for line in lines:
            rows, rest = wrap(line, width)
            complete += [*rows, _closed(rest, width)]
        rows, self._line = wrap(self._line, width)
        return "".join(f"{row}\n" for row in complete + rows)

    @property
    def row(self) -> Text:
        """The unfinished row after the last `feed`, tabs as spaces."""
        return Text(_untabbed(self._line))

    def finish(self, width: int) -> str:
        """The rest as a complete line; nothing if the answer ended with a newline or was empty."""
        shown = self.feed("\n", width) if self._line else ""
        self._line = ""
        return shown


class AnswerRows:
    """The answer as rows of a terminal: filtered, then wrapped."""

    def __init__(self) -> None:
        self._filter = TerminalFilter()
        self._line = Unfinished()

    def feed(self, text: str, width: int) -> str:
        """The rows completed by `text`, each with its newline."""
        return self._line.feed(self._filter.feed(text), width)

    @property
    def row(self) -> Text:
        """The growing row."""
        return self._line.row

    def finish(self, width: int) -> str:
        """The rest as complete rows."""
        return self._line.feed(self._filter.finish(), width) + self._line.finish(width)


def wrap(line: str, width: int) -> tuple[list[str], str]:
    """Cuts `line` into rows of at most `width` cells, at spaces if possible; returns full rows and the rest.

    Later text can still change the rest, which only trailing spaces may make too wide. Only spaces at cuts are lost.
    """
    rows: list[str] = []
    start = 0
    while (cut := _cut(line, start, width)) is not None:
        rows.append(line[start:cut].rstrip(" "))
        start = cut + (line[cut] == " ")
    return rows, line[start:]


def _cut(line: str, start: int, width: int) -> int | None:
    """The end of the row that begins at `start`: its last space after a word, else inside the word."""
    column, space = 0, None
    for index in range(start, len(line)):
        column += _cells(line[index], column)
        if line[index] == " " and line[start:index].strip():
            space = index  # the space may exceed the width; what follows it decides
        elif column > width and index > start:
            return index if space is None else space
    return None


def _closed(rest: str, width: int) -> str:
    """The rest of an ended line, without spaces that would fold onto an empty row."""
    column = 0
    for char in rest:
        column += _cells(char, column)
    return rest.rstrip(" ") if column > width else rest


def _untabbed(line: str) -> str:
    shown, column = [], 0
    for char in line:
        cells = _cells(char, column)
        column += cells
        shown.append(" " * cells if char == "\t" else char)
    return "".join(shown)


def _cells(char: str, column: int) -> int:
    """Cells of the character at `column`; emoji count as a terminal that joins none of them draws them."""
    if char == "\t":
        return _TAB - column % _TAB
    return 1 if char == "\ufe0f" else cell_len(char)
