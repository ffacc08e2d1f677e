"""Append-only text above, a few live rows below. One write for each refresh; a complete row is final.

A frame overwrites the last one, row by row, and erases only what a shorter row leaves: a terminal that shows half a
frame shows old rows beside new ones, never blank ones.

rich's `Live` is not used: in a narrower window terminals fold the drawn rows in two, and `Live`, which counts the rows
it drew, does not erase their upper halves. `LiveRegion` counts how many rows its last frame occupies *now*.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from specdec_cli.ui.panel.answer import cells
from specdec_cli.ui.suspension import Suspension, in_background
from specdec_cli.ui.terminal import encodable

_SYNC, _UNSYNC = "\x1b[?2026h", "\x1b[?2026l"  # one picture, not a flicker; ignored where unknown
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"  # where terminal and rich disagree on a width, the row is cut, never folded
_ERASE_ROW, _ERASE_REST, _UP = "\x1b[2K", "\x1b[K", "\x1b[A"
_STYLED: Final = re.compile("(\x1b\\[[0-9;]*m)")


class LiveRegion:
    """Rows at the bottom of a terminal that are redrawn; the cursor stays at the start of the last one."""

    def __init__(
        self,
        console: Console,
        stream: TextIO,
        size: Callable[[], tuple[int, int]],
        folds: bool,
        keeps_erased: bool = False,
    ) -> None:
        """`size` gives (columns, rows) now; `folds` says whether this terminal folds rows when it gets narrower.

        `keeps_erased`: it folds the erased end of a row, too. There a row that becomes shorter is erased as a whole.
        """
        self._console = console
        self._stream = stream
        self._size = size
        self._folds = folds
        self._keeps_erased = keeps_erased
        self._drawn: list[int] = []
        self._held = False
        self._suspension = Suspension(self.leave, self.forget)

    def draw(self, above: str, rows: Sequence[Text]) -> None:
        """Prints `above` (complete lines, already filtered) for good and `rows` (each one screen row) below it."""
        if in_background():  # the answer may go on there, but the screen is the shell's
            self._write(above)
            return
        width, _ = self._size()
        to_top, occupied = self._last_frame(width)
        lines, frame = self._over(above, rows, width)
        left = max(occupied - len(lines) - len(frame), 0)
        below = f"\n{_ERASE_ROW}" * left + _UP * left
        shown = f"{to_top}{''.join(lines)}{_NO_WRAP}{''.join(frame)[:-1]}{below}\r{_WRAP}"
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
        to_top, occupied = self._last_frame(width)
        lines, frame = self._over(above, rows, width)
        left = max(occupied - len(lines) - len(frame), 0)
        below = f"{_ERASE_ROW}\n" * (left - 1) + _ERASE_ROW + _UP * (left - 1) if left else ""
        shown = f"{to_top}{''.join(lines)}{_NO_WRAP}{''.join(frame)}{below}\r{_WRAP}{_SHOW_CURSOR}"
        self._drawn = []
        self._held = False
        self._suspension.release()
        self._write(f"{_SYNC}{shown}{_UNSYNC}")

    def leave(self) -> None:
        """Erases the rows and shows the cursor: the shell takes over. The next `draw` draws them again."""
        width, _ = self._size()
        with suppress(OSError, ValueError):  # a closed terminal
            os.write(self._stream.fileno(), f"{self._erasure(width)}{_WRAP}{_SHOW_CURSOR}{_UNSYNC}".encode())
        self.forget()

    def forget(self) -> None:
        """Others wrote on the terminal: the rows drawn last are no longer where they were."""
        self._drawn = []

    def _over(self, above: str, rows: Sequence[Text], width: int) -> tuple[list[str], list[str]]:
        """The lines of `above` and the frame's rows, each with its newline and without what the row held before."""
        lines = [_untabbed(line) for line in above.split("\n")[:-1]]
        frame = list(zip(self._ansi(rows, width), (row.cell_len for row in rows), strict=True))
        held = [*self._drawn, *[0] * (len(lines) + len(frame))]
        over = [f"{self._erased(*row, before, width)}\n" for row, before in zip([*lines, *frame], held, strict=False)]
        return over[: len(lines)], over[len(lines) :]

    def _erased(self, row: str, length: int, before: int, width: int) -> str:
        """`row` of `length` cells over one of `before`. At the end of a full row the cursor waits on its last cell."""
        if length >= width:
            return row
        return _ERASE_ROW + row if self._keeps_erased and before > length else row + _ERASE_REST

    def _ansi(self, rows: Sequence[Text], width: int) -> list[str]:
        """Each row as the terminal gets it."""
        if not rows:
            return []
        self._console.width = width  # rich would ask stdin, whose terminal may be another
        with self._console.capture() as capture:
            self._console.print(Text("\n").join(rows), end="", no_wrap=True, overflow="crop")
        return capture.get().split("\n")

    def _last_frame(self, width: int) -> tuple[str, int]:
        """(how to get to the start of its first row, the terminal's rows that it occupies), folded at this width.

        The cursor is at the start of its last row, or of the first of that row's folds.
        """
        folded = [max(1, -(-cells // width)) if self._folds else 1 for cells in self._drawn]
        return f"\r{_UP * sum(folded[:-1])}" if folded else "", sum(folded)

    def _erasure(self, width: int) -> str:
        """Erases all rows of the last frame and moves to the first.

        Row by row: erasing from the top left corner down counts as clearing the screen, and then tmux and others
        first copy the whole frame into the scroll-back.
        """
        to_top, occupied = self._last_frame(width)
        if not occupied or in_background():
            return ""
        above = to_top.count(_UP)
        below = f"\n{_ERASE_ROW}" * (occupied - above - 1) + _UP * (occupied - above - 1)
        return f"\r{_ERASE_ROW}{below}" + f"{_UP}{_ERASE_ROW}" * above

    def _write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))
        self._stream.flush()


def folds_rows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this terminal folds rows that became too wide (all the usual ones on a Mac) rather than cutting them."""
    term = environment.get("TERM", "")
    screen = term.startswith("screen") and "TMUX" not in environment
    return not (screen or term == "linux" or "XTERM_VERSION" in environment)


def _untabbed(line: str) -> tuple[str, int]:
    """A line and its cells; each tab, which only jumps, erases what it jumps over."""
    shown, column = [], 0
    for part in _STYLED.split(line):
        if part.startswith("\x1b"):
            shown.append(part)
            continue
        for word in re.split("(\t)", part):
            before, column = column, cells(" " * column + word)
            shown.append(f"\x1b[{column - before}X{word}" if word == "\t" else word)
    return "".join(shown), column
