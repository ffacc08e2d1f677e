"""The display for the command line's options and streams, and messages. No exit code is decided here."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO

from rich.text import Text

from specdec_cli.errors import DoesNotFit, SpecdecError, UsageError
from specdec_cli.events import Event, to_dict
from specdec_cli.ui.panel.live import PanelDisplay
from specdec_cli.ui.plain import PlainDisplay
from specdec_cli.ui.spelling import spelled
from specdec_cli.ui.summary import ErrorLike, demo_box, doctor_table, error_lines, summary
from specdec_cli.ui.terminal import can_draw, make_console, print_words, safe


class Display(Protocol):
    """Shows replies one after another, each from Start to Finish or Failure."""

    def handle(self, event: Event) -> None:
        """Shows one event. Raises: OSError for a closed pipe (BrokenPipeError) or a full disk."""

    def close(self) -> None:
        """Restores the terminal, also during a reply. A second call changes nothing; a closed stream never raises."""


class Tee:
    """Several displays as one, for `--trace`. All are closed, even if closing one raises."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = tuple(displays)

    def handle(self, event: Event) -> None:
        """Gives the event to each display, in order."""
        for display in self._displays:
            display.handle(event)

    def close(self) -> None:
        """Closes all displays, the last one first."""
        with ExitStack() as stack:
            for display in self._displays:
                stack.callback(display.close)


class JsonlDisplay:
    """Writes each event as one line of JSON, the object of DESIGN §3. The caller closes the stream."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def handle(self, event: Event) -> None:
        """Writes and flushes one line, so that a reader of the pipe gets each round at once."""
        # ASCII: otherwise json writes DEL, C1 and U+2028 as they are, and a lone surrogate cannot be written.
        self._out.write(json.dumps(to_dict(event), ensure_ascii=True) + "\n")
        self._out.flush()

    def close(self) -> None:
        """Nothing to do: every line was flushed."""


class TraceDisplay:
    """Writes the events into the file of --trace. A trace that cannot be written ends, and the reply goes on."""

    def __init__(self, path: Path) -> None:
        """Raises: UsageError if the file cannot be opened."""
        self._path = path
        self.failure: SpecdecError | None = None
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            hint = "name a file in a folder that exists and can be written to"
            raise UsageError(f"--trace {path} cannot be written: {error.strerror}", hint) from error
        self._display = JsonlDisplay(self._file)

    def handle(self, event: Event) -> None:
        """Writes one line; after the first failure nothing more."""
        if self.failure is not None:
            return
        try:
            self._display.handle(event)
        except OSError as error:
            kind = DoesNotFit if error.errno in (errno.ENOSPC, errno.EDQUOT) else SpecdecError
            hint = "the answer itself is whole; name a file on another disk: --trace FILE"
            self.failure = kind(f"--trace {self._path} ends here, it cannot be written: {error.strerror}", hint)

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):  # what could not be written before fails again
            self._file.close()


_DEMO_COMMAND = "specdec pull"
_DEMO = (
    "It ships inside specdec: two small models, trained on Python's standard library.",
    "It completes Python code, and answers anything else with nonsense. For a real pair that suits this machine:",
)
_DEMO_LINE = f"demo pair: it completes Python and knows nothing else; a real one: {_DEMO_COMMAND}"


@contextmanager
def open_display(
    out: TextIO,
    err: TextIO,
    *,
    name: str,
    json: bool,
    panel: bool | None,
    quiet: bool,
    plain: bool,
    trace: Path | None,
    small_panel: bool = False,
    colour_answer: bool = True,
    stepped: bool = False,
    verbose: bool = False,
    names_race: bool = False,
) -> Iterator[Display]:
    """The display for these options and streams, closed on exit. The panel needs an `err` that can draw it.

    `stepped`: a person asks for each round. `verbose` and `names_race` are those of `summary`.

    Raises: UsageError if the trace file cannot be opened; on leaving, SpecdecError if not all of it could be written.
    """
    with ExitStack() as stack:
        panels = panel is not False and not (json or quiet or plain) and can_draw(err)
        closing = partial(summary, verbose=verbose, names_race=names_race)
        display: Display
        if panels:
            display = PanelDisplay(
                out,
                err,
                name=name,
                small=small_panel,
                colour_answer=colour_answer,
                stepped=stepped,
                closing=closing,
            )
        elif json:
            display = JsonlDisplay(out)
        else:
            display = PlainDisplay(out, err, quiet, plain, closing=closing)
        stack.callback(display.close)
        if trace is None:
            yield display
            return
        traced = TraceDisplay(trace)
        stack.callback(traced.close)
        yield Tee([display, traced])
    if traced.failure is not None:
        raise traced.failure


@contextmanager
def loading(err: TextIO, name: str, shown: bool) -> Iterator[None]:
    """A line that names what is being loaded while it loads, on a terminal only."""
    if not shown or not can_draw(err):
        yield
        return
    err.write(spelled(f"loading {safe(name)}…", err))
    err.flush()
    try:
        yield
    finally:
        err.write("\r\x1b[2K")
        err.flush()


@contextmanager
def counting(err: TextIO) -> Iterator[Callable[[int, int, str], None]]:
    """A line `12 of 126  gemma3` that is overwritten, on a terminal only."""
    shown = can_draw(err)

    def report(done: int, total: int, name: str) -> None:
        if shown:
            err.write(spelled(f"\r\x1b[2K{done} of {total}  {safe(name)}", err))
            err.flush()

    try:
        yield report
    finally:
        if shown:
            err.write("\r\x1b[2K")
            err.flush()


def print_demo_box(err: TextIO, plain: bool) -> None:
    """What the demo pair is, which answers when no pair was named, and the next command."""
    console = make_console(err, plain=plain)
    box = demo_box("demo pair", _DEMO, _DEMO_COMMAND)
    box.width = min(80, console.width)
    console.print(box)


def print_demo_line(err: TextIO, plain: bool) -> None:
    """The same in one line."""
    print_notice(err, _DEMO_LINE, plain)


def print_notice(err: TextIO, sentence: str, plain: bool) -> None:
    """One dim line."""
    print_words(make_console(err, plain=plain), Text(safe(sentence), "dim"))


def print_above(err: TextIO, sentence: str, plain: bool) -> None:
    """One dim line while something is being loaded: it takes the place of the line that says so."""
    if can_draw(err) and not plain:
        err.write("\r\x1b[2K")
    print_notice(err, sentence, plain)


def print_doctor(out: TextIO, findings: Sequence[tuple[str, str, str]]) -> None:
    """The report of `specdec doctor`: a table on a terminal, tab-separated lines into a pipe."""
    console = make_console(out, plain=False)
    if console.is_terminal:
        console.print(doctor_table(findings))
        return
    for finding in findings:
        out.write(spelled("\t".join(map(safe, finding)).rstrip("\t") + "\n", out))


def print_error(err: TextIO, error: ErrorLike, plain: bool = False) -> None:
    """Message and hint, on a line each where no terminal folds them."""
    print_words(make_console(err, plain=plain), error_lines(error))
