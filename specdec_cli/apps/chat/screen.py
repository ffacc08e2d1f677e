"""The screen of a chat, and of kept ones. stdout gets answers or their events only; everything shown is filtered.

A reply that thinks before it answers: thinking has a mark besides its dim colour. If shown, each of its rows has the
mark; if hidden, one row gives its length. Tags are never shown.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, TextIO

from rich.text import Text

from specdec_cli.core.errors import SpecdecError
from specdec_cli.core.events import Failure
from specdec_cli.core.format import SEPARATOR, count
from specdec_cli.models.text import Thinking, ThinkingStream
from specdec_cli.terminal.display import OnEvent, TraceFile, display_of, print_error, print_event
from specdec_cli.terminal.look import Look
from specdec_cli.terminal.markdown import is_markdown, markdown, print_text
from specdec_cli.terminal.panel.answer import AnswerRows
from specdec_cli.terminal.summary import bare_table, columns, summary
from specdec_cli.terminal.terminal import can_draw, is_terminal, make_console, print_words, safe
from specdec_cli.terminal.writer import AnswerWriter

MOST_COPIED_BYTES: Final = 74_994
"""Longest text to copy by OSC 52; terminals drop longer sequences."""


class ChatScreen:
    """Shows everything of a chat, which decides what. `out` gets answers, `err` all else, `trace` the events."""

    def __init__(self, out: TextIO, err: TextIO, look: Look = Look(), trace: TraceFile | None = None) -> None:  # noqa: B008 - frozen
        self._out, self._err, self._look, self._trace = out, err, look, trace
        # The exit code of a --trace that could not be written.
        self.trace_code = 0
        self._console = make_console(err, plain=look.plain)

    @property
    def watched(self) -> bool:
        """Whether a person sees what is said of an answer."""
        return self._look.is_watched(self._err)

    @contextmanager
    def reply(self, name: str, tags: Thinking | None, hidden: bool, panel: bool) -> Iterator[OnEvent]:
        """What shows one reply of the pair `name`; behind it ends its line, and on a terminal an empty one follows.

        `tags` enclose its thinking, which may be `hidden`.
        """
        look = replace(self._look, panel=panel)
        display = display_of(
            *(self._out, self._err, look),
            name=name,
            closing=partial(summary, verbose=look.verbose, tells_read=True),
            trace=self._trace,
            stays=False,
            make_rows=lambda: ThinkingRows(tags, hidden),
            answer=ThinkingWriter(self._out, tags, hidden, styled=not look.plain and can_draw(self._out)),
        )
        try:
            with display as show:
                yield show
                if self.watched:
                    self._err.write("\n")
                    self._err.flush()
        finally:
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
            print_event(self._out, failure)
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

    def feed(self, text: str, width: int, style: str | None = None) -> list[Text]:
        pieces = self._stream.feed(text) or [(self._thinks, "")]
        return [row for piece in pieces for row in self._put(*piece, width, style)]

    @property
    def row(self) -> Text:
        if not self._thinks:
            return super().row
        return _marked(Text(f"thinking… {_words(self._thought)}") if self._hidden else self._thoughts.row)

    def finish(self, width: int) -> list[Text]:
        rest = [row for piece in self._stream.finish() for row in self._put(*piece, width)]
        return rest + (self._closed(width) if self._thinks else super().finish(width))

    def _put(self, thinks: bool, text: str, width: int, style: str | None = None) -> list[Text]:
        if thinks:
            self._thinks = True
            self._thought += text
            return [] if self._hidden else [_marked(row) for row in self._thoughts.feed(text, width - len(MARK))]
        return (self._closed(width) if self._thinks else []) + super().feed(text, width, style)

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


def print_chats(out: TextIO, rows: Sequence[Sequence[str]]) -> None:
    """Number, day, pair, turns, first words: a table, or into a pipe tab-separated lines."""
    lines = [[" ".join(safe(cell).split()) for cell in row] for row in rows]
    if not is_terminal(out):
        out.writelines("\t".join(line) + "\n" for line in lines)
        return
    console = make_console(out, plain=False)
    table = bare_table(rights=("",))
    table.add_column("last turn", no_wrap=True)
    table.add_column("pair", no_wrap=True, overflow="ellipsis", max_width=console.width // 5)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("begins")
    for number, *cells, words in lines:
        table.add_row(Text(number, "bold"), *map(Text, cells), Text(words, no_wrap=True, overflow="ellipsis"))
    with console.capture() as captured:
        console.print(table, Text("\nspecdec chat -c continues the last one, --resume N another", "dim"))
    print_text(out, captured.get(), plain=False)


def as_markdown(title: str, about: str, messages: Sequence[tuple[str, str]]) -> str:
    """A chat as a document: of each message who says it, and the text."""
    parts = [f"# {title}", about, *(f"## {who}\n\n{text.strip()}" for who, text in messages)]
    return safe("\n\n".join(parts) + "\n")


def print_chat(out: TextIO, document: str) -> None:
    """For a person its headings are bold, its lines folded, and it is paged where it is longer than the screen."""
    console, text = make_console(out, plain=False), Text(document.rstrip("\n"))
    text.highlight_regex(re.compile(r"^#+ .*", re.MULTILINE), "bold")
    with console.capture() as captured:
        console.print(text, soft_wrap=not is_terminal(out))
    print_text(out, captured.get(), plain=False)
