"""The answer as text. Stdout is the answer alone, raw in a pipe and filtered on a terminal."""

from __future__ import annotations

import contextlib
from typing import TextIO

from specdec_cli.events import Event, Failure, Finish, Prefill, RoundDone, Start
from specdec_cli.ui.summary import Closing, print_lines, summary
from specdec_cli.ui.terminal import TerminalFilter, encodable, is_terminal, make_console


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


class PlainDisplay:
    """The answer on `out` as it comes, the `closing` lines on `err` if any. The error boundary prints failures."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        plain: bool = False,
        answer: AnswerWriter | None = None,
        closing: Closing | None = summary,
    ) -> None:
        """`plain` keeps control codes and colour out of the `closing` lines; `answer` replaces the usual writer."""
        self._answer = answer or AnswerWriter(out)
        self._console = make_console(err, plain=plain)
        self._folds, self._closing = is_terminal(err), closing
        self._start: Start | None = None
        self._prefill: Prefill | None = None

    def handle(self, event: Event) -> None:
        """Streams a round's text; at the end of the reply adds a newline and the closing lines."""
        match event:
            case Start():
                self._start = event
            case Prefill():
                self._prefill = event
            case RoundDone(text=text):
                self._answer.write(text)
            case Finish(text_tail=tail):
                self._answer.write(tail)
                self._answer.end()
                if self._closing and self._start:
                    width = self._console.width if self._folds else None
                    print_lines(self._console, self._closing(self._start, event, width, self._prefill), width)
            case Failure():
                self._answer.end()

    def close(self) -> None:
        """Ends a partial answer's line; a closed stream is ignored."""
        with contextlib.suppress(OSError, ValueError):
            self._answer.end()
