"""A reply that thinks before it answers. Thinking has a mark besides its dim colour.

If shown, each of its rows has the mark; if hidden, one row gives its length. Tags are never shown.
"""

from __future__ import annotations

from typing import Final, TextIO

from rich.text import Text

from specdec_cli.fates import Fate
from specdec_cli.format import count
from specdec_cli.models.text import Thinking, ThinkingStream
from specdec_cli.ui.panel.answer import AnswerRows, Codes
from specdec_cli.ui.plain import AnswerWriter

MARK: Final = "┊ "
_DIM, _BRIGHT = "\x1b[2m", "\x1b[22m"


class ThinkingRows(AnswerRows):
    """Rows for the live region: thinking dim and marked, or folded into one row where it is `hidden`."""

    def __init__(self, tags: Thinking | None, hidden: bool, codes: Codes | None = None) -> None:
        """`codes` colour the answer, not the thinking."""
        super().__init__(codes)
        self._stream = ThinkingStream(tags)
        self._hidden = hidden
        self._thoughts = AnswerRows()
        self._thought = ""
        self._thinks = False

    def feed(self, text: str, width: int, fate: Fate | None = None) -> str:
        pieces = self._stream.feed(text) or [(self._thinks, "")]
        return "".join(self._put(*piece, width, fate) for piece in pieces)

    @property
    def row(self) -> Text:
        if not self._thinks:
            return super().row
        shown = f"thinking… {self._words()}" if self._hidden else self._thoughts.row
        return Text.assemble(MARK, shown, style="dim")

    def finish(self, width: int) -> str:
        rest = "".join(self._put(*piece, width) for piece in self._stream.finish())
        return rest + (self._closed(width) if self._thinks else super().finish(width))

    def _put(self, thinks: bool, text: str, width: int, fate: Fate | None = None) -> str:
        if thinks:
            self._thinks = True
            self._thought += text
            return "" if self._hidden else _marked(self._thoughts.feed(text, width - len(MARK)))
        return (self._closed(width) if self._thinks else "") + super().feed(text, width, fate)

    def _closed(self, width: int) -> str:
        """The end of the thinking, and an empty row after it."""
        self._thinks = False
        if self._hidden:
            return _marked(f"thought for {self._words()}\n") + "\n"
        return _marked(self._thoughts.finish(width - len(MARK))) + "\n"

    def _words(self) -> str:
        return count(len(self._thought.split()), "word")


def _marked(rows: str) -> str:
    return "".join(f"{_DIM}{MARK}{row}{_BRIGHT}\n" for row in rows.split("\n")[:-1])


class ThinkingWriter(AnswerWriter):
    """Streams such a reply without a live region. A pipe gets the model's own text, tags included."""

    def __init__(self, out: TextIO, tags: Thinking | None, hidden: bool, styled: bool) -> None:
        """`styled` allows control codes; `hidden` thinking is left out of a pipe."""
        super().__init__(out)
        self._raw = self._filter is None
        self._stream = ThinkingStream(None if self._raw and not hidden else tags)
        self._hidden = hidden
        self._dim, self._bright = (_DIM, _BRIGHT) if styled else ("", "")
        self._thought = ""

    def write(self, text: str) -> None:
        for thinks, part in self._stream.feed(text):
            self._piece(thinks, part)

    def end(self) -> None:
        for thinks, part in self._stream.finish():
            self._piece(thinks, part)
        self._close()
        super().end()

    def _piece(self, thinks: bool, text: str) -> None:
        if not thinks:
            self._close()
            super().write(text)
            return
        opening = "" if self._thought else f"{self._dim}{MARK}"
        self._thought += text
        if self._filter and not self._hidden:
            self._put(opening + self._filter.feed(text).replace("\n", f"\n{MARK}"))

    def _close(self) -> None:
        if self._thought and not self._raw:
            folded = f"{self._dim}{MARK}thought for {count(len(self._thought.split()), 'word')}" if self._hidden else ""
            self._put(f"{folded}{self._bright}\n\n")
        self._thought = ""
