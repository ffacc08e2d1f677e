"""The screen of a chat. Law: stdout gets answers or their events only, and everything shown is filtered."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO

from rich.text import Text

from specdec_cli.chat.screen import Item, Markdown, Notice, Quote, Rows
from specdec_cli.errors import SpecdecError
from specdec_cli.events import Event, Failure, Finish, Prefill, Start
from specdec_cli.format import count
from specdec_cli.models.text import Thinking
from specdec_cli.ui.chat.reports import markdown, turn_lines, two_columns
from specdec_cli.ui.chat.rows import ThinkingRows, ThinkingWriter
from specdec_cli.ui.display import Display, JsonlDisplay, Tee, TraceDisplay, print_error
from specdec_cli.ui.panel.live import PanelDisplay
from specdec_cli.ui.plain import PlainDisplay
from specdec_cli.ui.summary import print_lines
from specdec_cli.ui.terminal import can_draw, is_terminal, make_console, print_words, safe, terminal_size


def copied_here(text: str, environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether the system's command copied `text`: some terminals, among them Apple's, lack OSC 52."""
    command = "pbcopy" if platform == "darwin" else "wl-copy" if "WAYLAND_DISPLAY" in environment else ""
    path = shutil.which(command, path=environment.get("PATH")) if command else None
    if path is None or "SSH_CONNECTION" in environment:
        return False
    settings = {**environment, "LC_CTYPE": "UTF-8"}  # else pbcopy reads Latin-1
    try:
        return subprocess.run([path], input=text.encode(), env=settings, timeout=5, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


MOST_COPIED_BYTES: Final = 74_994
"""Longest text to copy by OSC 52; terminals drop longer sequences."""


class ChatScreen:
    """The screen given to a chat. `out` gets answers, `err` everything else, `trace` the events."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        json: bool = False,
        quiet: bool = False,
        plain: bool = False,
        trace: TraceDisplay | None = None,
        small_panel: bool = False,
        colour_answer: bool = True,
        verbose: bool = False,
    ) -> None:
        self._small_panel, self._colour_answer = small_panel, colour_answer
        self._out, self._err = out, err
        self._json, self._quiet, self._plain, self._verbose = json, quiet or json, plain, verbose
        self._trace, self.trace_code = trace, 0
        self._console = make_console(err, plain=plain)

    @contextlib.contextmanager
    def reply(self, name: str, tags: Thinking | None, hidden: bool, panel: bool) -> Iterator[Display]:
        """The display of one reply of the pair `name`, closed on leaving."""
        display = self._display(name, tags, hidden, panel)
        shown = display if self._trace is None else Tee([display, self._trace])
        try:
            yield shown
        finally:
            display.close()
            self._report_trace()

    def _report_trace(self) -> None:
        """Says once that --trace could not be written; `trace_code` is that failure's exit code."""
        failure = self._trace.failure if self._trace else None
        if failure is not None and not self.trace_code:
            self.trace_code = failure.exit_code
            print_error(self._err, failure, self._plain)

    def _display(self, name: str, tags: Thinking | None, hidden: bool, panel: bool) -> Display:
        if self._json:
            return JsonlDisplay(self._out)
        if panel and not (self._quiet or self._plain) and can_draw(self._err):
            panel_display = PanelDisplay(
                *(self._out, self._err),
                quiet=True,
                name=name,
                rows=lambda codes: ThinkingRows(tags, hidden, codes),
                stays=False,
                small=self._small_panel,
                colour_answer=self._colour_answer,
            )
            return _WithTurnLine(panel_display, self)
        styled = not self._plain and can_draw(self._out)
        answer = ThinkingWriter(self._out, tags, hidden, styled)
        return _WithTurnLine(PlainDisplay(self._out, self._err, True, self._plain, answer), self)

    def width(self) -> int:
        """Columns of the terminal now."""
        return terminal_size(self._err)[0]

    def greet(self, rows: str) -> None:
        """Shows the pair, and how to get help."""
        if not self._quiet:
            self._notice(rows)

    def turn(self, start: Start, prefill: Prefill | None, finish: Finish) -> None:
        """The line after a reply, and an empty one on a terminal."""
        if not self._quiet:
            width = self.width()
            print_lines(self._console, turn_lines(start, prefill, finish, width, self._verbose), width)
            self._gap()

    def _gap(self) -> None:
        """An empty line between turns, on a terminal."""
        if is_terminal(self._err) and not self._json:
            self._err.write("\n")
            self._err.flush()

    def show(self, item: Item) -> None:
        """Shows the item; -q hides notices, but not what a command shows."""
        match item:
            case Notice(sentence):
                self._notice(sentence)
            case Rows(rows):
                self._console.print(two_columns(rows))
            case Markdown(text, gap):
                self._console.print(markdown(text, self._console))
                if gap:
                    self._gap()
            case Quote(text):
                self._console.print(Text(safe(text), "dim"))

    def _notice(self, sentence: str) -> None:
        """One dim line."""
        if not self._quiet:
            print_words(self._console, Text(safe(sentence), "dim"))

    def error(self, error: SpecdecError) -> None:
        """Message and hint; with --json or --trace also an event."""
        print_error(self._err, error, self._plain)
        failure = Failure(error.message, error.hint, error.exit_code)
        if self._json:
            JsonlDisplay(self._out).handle(failure)
        if self._trace:
            self._trace.handle(failure)

    def copy(self, text: str) -> str:
        """Copies by the system's command, else by the terminal (OSC 52, which also works over ssh); says which.

        Raises: SpecdecError without a terminal, and for a text that is too long for one sequence.
        """
        text = safe(text)  # a paste into a shell must not act there
        if copied_here(text):
            return f"{count(len(text), 'character')} copied"
        if self._plain or not can_draw(self._err):
            raise SpecdecError("no terminal here that could copy", "select the text, or /save FILE")
        data = text.encode()
        if len(data) > MOST_COPIED_BYTES:
            message = f"the answer has {len(data)} bytes and terminals copy {MOST_COPIED_BYTES}"
            raise SpecdecError(message, "/save FILE keeps all of it")
        self._err.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._err.flush()
        return f"{len(text)} characters handed to the terminal's clipboard"


def opened_trace(stack: contextlib.ExitStack, path: Path | None) -> TraceDisplay | None:
    """The file of --trace, closed with `stack`. Raises: UsageError if it cannot be opened."""
    if path is None:
        return None
    trace = TraceDisplay(path)
    stack.callback(trace.close)
    return trace


class _WithTurnLine:
    """A display, and the line after each reply."""

    def __init__(self, display: Display, screen: ChatScreen) -> None:
        self._display, self._screen = display, screen
        self._start: Start | None = None
        self._prefill: Prefill | None = None

    def handle(self, event: Event) -> None:
        self._display.handle(event)
        if isinstance(event, Start):
            self._start = event
        elif isinstance(event, Prefill):
            self._prefill = event
        elif isinstance(event, Finish) and self._start is not None:
            self._screen.turn(self._start, self._prefill, event)

    def close(self) -> None:
        self._display.close()
