"""A reply that thinks before it answers. Thinking has a mark besides its dim colour.

If shown, each of its rows has the mark; if hidden, one row gives its length. Tags are never shown.
"""

from __future__ import annotations

from typing import Final, TextIO

from rich.text import Text

from specdec_cli.core.fates import Fate
from specdec_cli.core.format import count
from specdec_cli.models.text import Thinking, ThinkingStream
from specdec_cli.terminal.panel.answer import AnswerRows
from specdec_cli.terminal.writer import AnswerWriter

MARK: Final = "┊ "
_DIM, _BRIGHT = "\x1b[2m", "\x1b[22m"


class ThinkingRows(AnswerRows):
    """Rows for the live region: thinking dim and marked, or folded into one row where it is `hidden`."""

    def __init__(self, tags: Thinking | None, hidden: bool) -> None:
        super().__init__()
        self._stream = ThinkingStream(tags)
        self._hidden = hidden
        self._thoughts = AnswerRows()
        self._thought = ""
        self._thinks = False

    def feed(self, text: str, width: int, fate: Fate | None = None) -> list[Text]:
        pieces = self._stream.feed(text) or [(self._thinks, "")]
        return [row for piece in pieces for row in self._put(*piece, width, fate)]

    @property
    def row(self) -> Text:
        if not self._thinks:
            return super().row
        return _marked(Text(f"thinking… {_words(self._thought)}") if self._hidden else self._thoughts.row)

    def finish(self, width: int) -> list[Text]:
        rest = [row for piece in self._stream.finish() for row in self._put(*piece, width)]
        return rest + (self._closed(width) if self._thinks else super().finish(width))

    def _put(self, thinks: bool, text: str, width: int, fate: Fate | None = None) -> list[Text]:
        if thinks:
            self._thinks = True
            self._thought += text
            return [] if self._hidden else [_marked(row) for row in self._thoughts.feed(text, width - len(MARK))]
        return (self._closed(width) if self._thinks else []) + super().feed(text, width, fate)

    def _closed(self, width: int) -> list[Text]:
        """The end of the thinking, and an empty row after it."""
        self._thinks = False
        folded = [Text(f"thought for {_words(self._thought)}")]
        rows = folded if self._hidden else self._thoughts.finish(width - len(MARK))
        return [*map(_marked, rows), Text()]


def _marked(row: Text) -> Text:
    return Text.assemble(MARK, row, style="dim")


def _words(thought: str) -> str:
    return count(len(thought.split()), "word")


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
        for piece in self._stream.feed(text):
            self._piece(*piece)

    def end(self) -> None:
        for piece in self._stream.finish():
            self._piece(*piece)
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
            folded = f"{self._dim}{MARK}thought for {_words(self._thought)}" if self._hidden else ""
            self._put(f"{folded}{self._bright}\n\n")
        self._thought = ""
