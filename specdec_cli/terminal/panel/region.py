"""Append-only text above, a few live rows below. One write for each refresh; a complete row is final.

A frame overwrites the last one, row by row, and erases only what a shorter row leaves: a terminal that shows half a
frame shows old rows beside new ones, never blank ones. rich's `Live` (15.0) is not used. In a narrower
window terminals fold the drawn rows in two, and it leaves their upper halves amid the answer; here the rows that are
folded *now* are counted. After Ctrl-Z it leaves the shell no cursor, and after `fg` it erases the shell's own rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from specdec_cli.terminal.suspension import Suspension, in_background, may_draw
from specdec_cli.terminal.terminal import encodable

REFRESH_SECONDS: Final = 0.1
_SYNC, _UNSYNC = "\x1b[?2026h", "\x1b[?2026l"  # one picture, not a flicker; ignored where unknown
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"  # where terminal and rich disagree on a width, the row is cut, never folded
_ERASE_ROW, _ERASE_REST, _UP = "\x1b[2K", "\x1b[K", "\x1b[A"
_STYLES: Final = re.compile("\x1b\\[[0-9;]*m")


class LiveRegion:
    """Rows at the bottom of a terminal that are redrawn; the cursor stays at the start of the last one."""

    def __init__(self, console: Console, stream: TextIO, size: Callable[[], tuple[int, int]]) -> None:
        """`size` gives (columns, rows) now."""
        self._console, self._stream, self.size = console, stream, size
        self._due_at = -inf
        # tmux folds the erased end of a row, too: there a row that becomes shorter is erased as a whole.
        self._keeps_erased = "TMUX" in os.environ
        self._drawn: list[int] = []
        self._held = False
        self._suspension = Suspension(self.leave, self.forget)

    def due(self, now: float) -> bool:
        """Whether a frame is to be drawn at `now` seconds: the first one, and those REFRESH_SECONDS after another."""
        if now < self._due_at:
            return False
        self._due_at = now + REFRESH_SECONDS
        return True

    def draw(self, above: str, rows: Sequence[Text]) -> None:
        """Prints `above` (complete lines, already filtered) for good and `rows` (each one screen row) below it."""
        if not may_draw():  # the answer may go on there, but the screen is the shell's
            self._write(above)
            return
        shown = self._picture(above, rows, stays=False)
        # Before the write: after an interrupt in it the stream still flushes the rest, so all of it is drawn.
        self._drawn = [min(row.cell_len, self.size()[0]) for row in rows]
        self._held = True
        self._suspension.hold()
        self._write(f"{_SYNC}{_HIDE_CURSOR}{shown}{_UNSYNC}")

    def release(self, above: str, rows: Sequence[Text] = ()) -> None:
        """Prints `above` and a last frame for good and restores the terminal: cursor visible, on its own line."""
        self._due_at = -inf
        if not (self._held or above or rows):
            return
        shown = self._picture(above, rows, stays=True)
        self.forget()
        self._held = False
        self._suspension.release()
        self._write(f"{_SYNC}{shown}{_SHOW_CURSOR}{_UNSYNC}")

    def leave(self) -> None:
        """Erases the rows and shows the cursor: the shell takes over. The next `draw` draws them again."""
        erased = "" if in_background() else self._picture("", (), stays=True)
        with suppress(OSError, ValueError):  # a closed terminal
            os.write(self._stream.fileno(), f"{erased}{_WRAP}{_SHOW_CURSOR}{_UNSYNC}".encode())
        self.forget()

    def forget(self) -> None:
        """Others wrote on the terminal: the rows drawn last are no longer where they were."""
        self._drawn = []

    def ansi(self, rows: Sequence[Text]) -> list[str]:
        """Each row as the terminal gets it."""
        if not rows:
            return []
        self._console.width = self.size()[0]  # rich would ask stdin, whose terminal may be another
        with self._console.capture() as capture:
            self._console.print(Text("\n").join(rows), end="", no_wrap=True, overflow="crop")
        return capture.get().split("\n")

    def _picture(self, above: str, rows: Sequence[Text], stays: bool) -> str:
        """All of a frame over the last one, whose rows are folded at the width of now.

        What is left of the last one below is erased row by row: erasing from the top left corner down counts as
        clearing the screen, and then tmux and others first copy the whole frame into the scroll-back.
        """
        width = self.size()[0]
        folded = [max(1, -(-cells // width)) for cells in self._drawn]
        to_top = f"\r{_UP * sum(folded[:-1])}" if folded else ""
        lines = [(line, cell_len(_STYLES.sub("", line))) for line in above.split("\n")[:-1]]
        frame = list(zip(self.ansi(rows), (row.cell_len for row in rows), strict=True))
        before = [*self._drawn, *[0] * (len(lines) + len(frame))]
        over = [f"{self._erased(*row, held, width)}\n" for row, held in zip([*lines, *frame], before, strict=False)]
        left = max(sum(folded) - len(over), 0)
        shown = "".join([*over[: len(lines)], _NO_WRAP, *over[len(lines) :]])
        if stays:
            below = f"{_ERASE_ROW}\n" * (left - 1) + _ERASE_ROW + _UP * (left - 1) if left else ""
        else:
            shown, below = shown.removesuffix("\n"), f"\n{_ERASE_ROW}" * left + _UP * left
        return f"{to_top}{shown}{below}\r{_WRAP}"

    def _erased(self, row: str, length: int, before: int, width: int) -> str:
        """`row` of `length` cells over one of `before`. At the end of a full row the cursor waits on its last cell."""
        if length >= width:
            return row
        return _ERASE_ROW + row if self._keeps_erased and before > length else row + _ERASE_REST

    def _write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))
        self._stream.flush()
