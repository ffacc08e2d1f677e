"""The screen of a chat. stdout gets answers or their events only, and everything shown is filtered."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TextIO

from rich.text import Text

from specdec_cli.apps.chat.thinking import ThinkingRows, ThinkingWriter
from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.events import Failure
from specdec_cli.core.format import count
from specdec_cli.models.text import Thinking
from specdec_cli.terminal.display import Display, JsonlDisplay, Look, Tee, TraceDisplay, display_of, print_error
from specdec_cli.terminal.markdown import is_markdown, markdown
from specdec_cli.terminal.summary import SEPARATOR, columns, summary
from specdec_cli.terminal.terminal import can_draw, is_terminal, make_console, print_words, safe

MOST_COPIED_BYTES: Final = 74_994
"""Longest text to copy by OSC 52; terminals drop longer sequences."""


class ChatScreen:
    """The screen given to a chat. `out` gets answers, `err` everything else, `trace` the events."""

    def __init__(self, out: TextIO, err: TextIO, look: Look = Look(), trace: TraceDisplay | None = None) -> None:  # noqa: B008 - frozen
        self._out, self._err, self._look, self._trace = out, err, look, trace
        # The exit code of a --trace that could not be written.
        self.trace_code = 0
        self._console = make_console(err, plain=look.plain)

    @contextmanager
    def reply(self, name: str, tags: Thinking | None, hidden: bool, panel: bool) -> Iterator[Display]:
        """The display of one reply of the pair `name`, closed on leaving; its line, and an empty one on a terminal."""
        look = replace(self._look, panel=panel)
        display = display_of(
            *(self._out, self._err, look),
            name=name,
            closing=partial(summary, verbose=look.verbose, tells_read=True),
            stays=False,
            make_rows=lambda: ThinkingRows(tags, hidden),
            answer=ThinkingWriter(self._out, tags, hidden, styled=not look.plain and can_draw(self._out)),
        )
        try:
            yield Tee([display, self._trace]) if self._trace else display
            if is_terminal(self._err) and not (look.json or look.quiet):
                self._err.write("\n")
                self._err.flush()
        finally:
            display.close()
            failure = self._trace.failure if self._trace else None
            if failure is not None and not self.trace_code:  # said once
                self.trace_code = failure.exit_code
                print_error(self._err, failure, look.plain)

    def notice(self, sentence: str) -> None:
        """One dim line; -q and --json hide it."""
        if not (self._look.quiet or self._look.json):
            print_words(self._console, Text(safe(sentence), "dim"))

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values in columns."""
        self._console.print(columns(rows))

    def markdown(self, text: str) -> None:
        """`text` as Markdown, its lines kept; what is none stays as it is: `__init__` is no bold `init`."""
        shown = markdown(text, self._console, keeps_lines=True) if is_markdown(text) else Text(safe(text))
        self._console.print(shown)

    def quote(self, text: str) -> None:
        """Foreign text verbatim, dim."""
        self._console.print(Text(safe(text), "dim"))

    def error(self, error: SpecdecError) -> None:
        """Message and hint; with --json or --trace also an event."""
        print_error(self._err, error, self._look.plain)
        failure = Failure(error.message, error.hint, error.exit_code)
        if self._look.json:
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
        data = text.encode()
        if self._look.plain or not can_draw(self._err) or len(data) > MOST_COPIED_BYTES:
            message = (
                f"{len(data)} bytes cannot be copied: no clipboard command, and a terminal takes {MOST_COPIED_BYTES}"
            )
            raise SpecdecError(message, "select the text, or /save FILE")
        self._err.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\x07")
        self._err.flush()
        return f"{count(len(text), 'character')} sent to the terminal's clipboard"


def copied_here(text: str, environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether the system's command copied `text`: some terminals, among them Apple's, lack OSC 52."""
    command = "pbcopy" if platform == "darwin" else "wl-copy" if "WAYLAND_DISPLAY" in environment else ""
    path = shutil.which(command, path=environment.get("PATH")) if command else None
    if path is None or "SSH_CONNECTION" in environment:
        return False
    settings = {**environment, "LC_CTYPE": "UTF-8"}  # else pbcopy reads Latin-1
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([path], input=text.encode(), env=settings, timeout=5, check=False).returncode == 0
    return False


def toolbar(parts: Sequence[str], width: int) -> str:
    """The first `parts` that fit."""
    shown = [safe(part).replace("\n", " ") for part in parts]
    while len(shown) > 1 and len(SEPARATOR.join(shown)) > max(width - 2, 1):
        shown.pop()
    return SEPARATOR.join(shown)
