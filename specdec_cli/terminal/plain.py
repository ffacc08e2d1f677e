"""A reply without a panel: the answer, the rounds' lines if asked for, and the closing lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TextIO

from rich.text import Text

from specdec_cli.core.events import Event, Failure, Finish, Prefill, Reading, RoundDone, Start
from specdec_cli.terminal.panel.rounds import RoundRows
from specdec_cli.terminal.panel.status import READING, StatusLine, reading_step
from specdec_cli.terminal.summary import Closing, print_lines, summary
from specdec_cli.terminal.terminal import is_terminal, make_console, same_terminal
from specdec_cli.terminal.writer import AnswerWriter


class RoundLines:
    """`--rounds`: each round as one line on `err`, append-only, every token whole."""

    def __init__(self, err: TextIO, plain: bool, free: Callable[[], bool] = lambda: True) -> None:
        """While it is not `free`, lines wait: another text's line is open on the same terminal."""
        self._console, self._free = make_console(err, plain=plain), free
        self._waiting: list[Text] = []

    def handle(self, event: Event) -> None:
        """A round's line, once `free`."""
        if isinstance(event, Start):
            self._rows = RoundRows(event, cut=False)
        elif isinstance(event, RoundDone):
            self._waiting.append(self._rows.row(event))
        self.flush()

    def flush(self) -> None:
        """Prints the lines that wait, if `free`."""
        if self._free():
            lines, self._waiting = self._waiting, []
            print_lines(self._console, lines, None)

    def close(self) -> None:
        """As `flush`; a closed stream is ignored."""
        with contextlib.suppress(OSError, ValueError):
            self.flush()


class PlainDisplay:
    """The answer on `out` as it comes, the `closing` lines on `err` if any. The error boundary prints failures."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        plain: bool = False,
        answer: AnswerWriter | None = None,
        rounds: bool = False,
        closing: Closing | None = summary,
    ) -> None:
        """`plain` keeps control codes and colour out of the `closing` lines; `answer` replaces the usual writer.

        `rounds` prints every round on `err`.
        """
        self._answer = answer or AnswerWriter(out)
        self._console = make_console(err, plain=plain)
        self._folds, self._closing = is_terminal(err), closing
        shared = same_terminal(out, err)
        self._lines = RoundLines(err, plain, lambda: not shared or self._answer.between_lines) if rounds else None
        self._start: Start | None = None
        self._prefill: Prefill | None = None
        self._reading = StatusLine(err, READING, shown=closing is not None, plain=plain)
        self._open = contextlib.ExitStack()

    def handle(self, event: Event) -> None:
        """Streams a round's text; at the end of the reply adds a newline and the closing lines."""
        if self._lines and not isinstance(event, Finish | Failure):
            self._lines.handle(event)
        if not isinstance(event, Start | Reading | Prefill):
            self._open.close()
        match event:
            case Start():
                self._start = event
                self._open.enter_context(self._reading).say(reading_step(event.prompt_tokens))
            case Reading():
                self._reading.say(reading_step(event.prompt_tokens, event))
            case Prefill():
                self._prefill = event
            case RoundDone(text=text):
                self._say(text)
            case Finish(text_tail=tail):
                self._say(tail)
                self._end()
                if self._closing and self._start:
                    width = self._console.width if self._folds else None
                    print_lines(self._console, self._closing(self._start, event, width, self._prefill), width)
            case Failure():
                self._end()

    def close(self) -> None:
        """Ends a partial answer's line; a closed stream is ignored."""
        with contextlib.suppress(OSError, ValueError):
            self._open.close()
            self._end()

    def _say(self, text: str) -> None:
        """Rounds' lines that wait for the end of the answer's line go to where `text` ends it."""
        ended = text.rfind("\n") + 1
        if self._lines and ended:
            self._answer.write(text[:ended])
            self._lines.flush()
            text = text[ended:]
        self._answer.write(text)

    def _end(self) -> None:
        self._answer.end()
        if self._lines:
            self._lines.flush()
