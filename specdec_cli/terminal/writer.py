"""The answer as text. Stdout is the answer alone, raw in a pipe and filtered on a terminal."""

from __future__ import annotations

from typing import TextIO

from specdec_cli.terminal.terminal import TerminalFilter, encodable, is_terminal


class AnswerWriter:
    """Streams an answer to `out`, and adds a final newline if the text has none."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._filter = TerminalFilter() if is_terminal(out) else None
        self._last = "\n"

    def write(self, text: str) -> None:
        """Writes and flushes the printable part."""
        self._put(self._filter.feed(text) if self._filter else text)

    def end(self) -> None:
        """Completes the answer; calling it again changes nothing."""
        if self._filter:
            self._put(self._filter.finish())
        if self._last != "\n":
            self._put("\n")

    def _put(self, text: str) -> None:
        if text:
            self._out.write(encodable(text, self._out))
            self._out.flush()
            self._last = text[-1]
