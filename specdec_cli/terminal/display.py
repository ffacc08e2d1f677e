"""The display for the command line's options and streams, and messages. No exit code is decided here.

Without a panel a reply is the answer, the rounds' lines if asked for, and the closing lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.text import Text

from specdec_cli.core.errors import SpecdecError, UsageError, not_written
from specdec_cli.core.events import Event, Failure, Finish, Prefill, Reading, RoundDone, Start, to_dict
from specdec_cli.terminal.look import Look
from specdec_cli.terminal.panel.answer import AnswerRows
from specdec_cli.terminal.panel.live import PanelDisplay
from specdec_cli.terminal.panel.rounds import RoundRows
from specdec_cli.terminal.panel.status import READING, StatusLine, reading_step
from specdec_cli.terminal.summary import Closing, ErrorLike, columns, error_lines, print_lines, summary
from specdec_cli.terminal.terminal import can_draw, is_terminal, make_console, print_words, safe, same_terminal
from specdec_cli.terminal.writer import AnswerWriter

OnEvent = Callable[[Event], None]
"""Shows one event. Raises: OSError for a closed pipe (BrokenPipeError) or a full disk."""


class TraceFile:
    """The events in the file of --trace. A trace that cannot be written ends, and the reply goes on."""

    def __init__(self, path: Path) -> None:
        """Raises: UsageError if the file cannot be opened."""
        self._path = path
        self.failure: SpecdecError | None = None
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            hint = "name a file in a folder that exists and can be written to"
            raise UsageError(f"--trace {path} cannot be written: {error.strerror}", hint) from error

    def handle(self, event: Event) -> None:
        """Writes one line; after the first failure nothing more."""
        if self.failure is not None:
            return
        try:
            print_event(self._file, event)
        except OSError as error:
            hint = "the answer itself is whole; name a file on another disk: --trace FILE"
            told = f"--trace {self._path} ends here, it cannot be written: {error.strerror}"
            self.failure = not_written(error, told, hint)

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):  # what could not be written before fails again
            self._file.close()


def round_lines(err: TextIO, plain: bool) -> OnEvent:
    """`--rounds`: each round at once as one line on `err`, append-only, every token whole."""
    console = make_console(err, plain=plain)
    rows: RoundRows

    def show(event: Event) -> None:
        nonlocal rows
        if isinstance(event, Start):
            rows = RoundRows(event, cut=False)
        elif isinstance(event, RoundDone):
            print_lines(console, [rows.row(event)], None)

    return show


class PlainDisplay:
    """The answer on `out` as it comes, the `closing` lines on `err` if any. The error boundary prints failures."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        look: Look = Look(),  # noqa: B008 - frozen
        *,
        answer: AnswerWriter | None = None,
        closing: Closing = summary,
    ) -> None:
        """`answer` replaces the usual writer.

        Where rounds are printed on the terminal of `out`, the answer comes behind them, whole.
        """
        self._answer = answer or AnswerWriter(out)
        self._console = make_console(err, plain=look.plain)
        self._folds, self._closing = is_terminal(err), None if look.quiet else closing
        self._show_round = round_lines(err, look.plain) if look.rounds else None
        self._waits, self._held = look.rounds and same_terminal(out, err), ""
        self._start: Start | None = None
        self._prefill: Prefill | None = None
        self._reading = StatusLine(err, READING, shown=not look.quiet, plain=look.plain)
        self._open = ExitStack()

    def handle(self, event: Event) -> None:
        """Streams a round's text; at the end of the reply adds a newline and the closing lines."""
        if not isinstance(event, Start | Reading | Prefill):
            self._open.close()
        if self._show_round:
            self._show_round(event)
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
        with suppress(OSError, ValueError):
            self._open.close()
            self._end()

    def _say(self, text: str) -> None:
        if self._waits:
            self._held += text
        else:
            self._answer.write(text)

    def _end(self) -> None:
        held, self._held = self._held, ""
        self._answer.write(held)
        self._answer.end()


@contextmanager
def display_of(
    out: TextIO,
    err: TextIO,
    look: Look,
    *,
    name: str,
    closing: Closing,
    trace: TraceFile | None = None,
    stays: bool = True,
    make_rows: Callable[[], AnswerRows] = AnswerRows,
    answer: AnswerWriter | None = None,
) -> Iterator[OnEvent]:
    """What shows replies of the pair `name` one after another, each from Start to Finish or Failure, for this look and
    these streams; the panel needs an `err` that can draw it. On exit the terminal is restored, also amid a reply.

    `trace` gets every event, too. `answer` writes the answer where there is no panel, and the other arguments are
    those of `PanelDisplay`.
    """
    shows: list[OnEvent]
    with ExitStack() as stack:
        if look.json:
            shows = [partial(print_event, out), *([round_lines(err, look.plain)] if look.rounds else ())]
        else:
            display: PlainDisplay | PanelDisplay
            if look.panel is False or look.quiet or look.plain or not can_draw(err):
                display = PlainDisplay(out, err, look, answer=answer, closing=closing)
            else:
                display = PanelDisplay(out, err, look, name=name, make_rows=make_rows, stays=stays, closing=closing)
            stack.callback(display.close)
            shows = [display.handle]
        if trace:
            shows.append(trace.handle)

        def show(event: Event) -> None:
            for each in shows:
                each(event)

        yield show


@contextmanager
def open_display(out: TextIO, err: TextIO, look: Look, name: str) -> Iterator[OnEvent]:
    """What shows replies of the pair `name`; the trace file is its own.

    Raises: UsageError if the trace file cannot be opened; on leaving, SpecdecError if not all of it could be written.
    """
    said = partial(summary, verbose=look.verbose)
    with (
        closing(TraceFile(look.trace)) if look.trace else nullcontext() as trace,
        display_of(out, err, look, name=name, closing=said, trace=trace) as show,
    ):
        yield show
    if trace and trace.failure:
        raise trace.failure


def print_notice(err: TextIO, sentence: str, plain: bool) -> None:
    """One dim line."""
    print_words(make_console(err, plain=plain), Text(safe(sentence), "dim"))


def print_question(err: TextIO, question: str) -> None:
    """One line, folded between words, behind which the answer is typed."""
    print_words(make_console(err, plain=False), Text(safe(f"{question} ")), end="")
    err.flush()


def print_columns(out: TextIO, rows: Sequence[Sequence[str]], plain: bool = False) -> None:
    """Names, values and notes: a table on a terminal, tab-separated lines into a pipe."""
    if is_terminal(out):
        make_console(out, plain=plain).print(columns(rows))
        return
    for row in rows:
        out.write("\t".join(map(safe, row)).rstrip("\t") + "\n")


def print_line(out: TextIO, text: str) -> None:
    """One filtered line."""
    if is_terminal(out):
        print_words(make_console(out, plain=False), Text(safe(text)))
    else:
        out.write(safe(text) + "\n")


def print_json(out: TextIO, value: object) -> None:
    out.write(json.dumps(value, indent=1) + "\n")


def print_event(out: TextIO, event: Event) -> None:
    """A line of JSON, flushed, so that a reader of the pipe gets each round at once. Raises: OSError as `OnEvent`."""
    # ASCII: otherwise json writes DEL, C1 and U+2028 as they are, and a lone surrogate cannot be written.
    out.write(json.dumps(to_dict(event), ensure_ascii=True) + "\n")
    out.flush()


def print_error(err: TextIO, error: ErrorLike, plain: bool = False) -> None:
    """Message and hint, on a line each where no terminal folds them."""
    print_words(make_console(err, plain=plain), error_lines(error))
