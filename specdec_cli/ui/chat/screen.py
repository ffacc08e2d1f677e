"""The screen of a chat. stdout gets answers or their events only, and everything shown is filtered.

Markdown is filtered after rendering, too: rendering makes characters.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.markdown import Markdown as RichMarkdown
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from specdec_cli.chat.screen import Item, Markdown, Notice, Quote, Rows
from specdec_cli.errors import SpecdecError
from specdec_cli.events import Event, Failure, Finish, Prefill, Start
from specdec_cli.format import count
from specdec_cli.models.text import Thinking
from specdec_cli.ui.chat.thinking import ThinkingRows, ThinkingWriter
from specdec_cli.ui.display import Display, JsonlDisplay, Tee, TraceDisplay, print_error
from specdec_cli.ui.panel.live import PanelDisplay
from specdec_cli.ui.plain import PlainDisplay
from specdec_cli.ui.summary import SEPARATOR, costs, fitted, print_lines, reply_figures
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
        self._trace = trace
        # The exit code of a --trace that could not be written.
        self.trace_code = 0
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
            failure = self._trace.failure if self._trace else None
            if failure is not None and not self.trace_code:  # said once
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

    def turn(self, start: Start, prefill: Prefill | None, finish: Finish) -> None:
        """The line after a reply, and an empty one on a terminal."""
        if not self._quiet:
            width = terminal_size(self._err)[0]
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


def turn_lines(start: Start, prefill: Prefill | None, finish: Finish, width: int, verbose: bool = False) -> list[Text]:
    """One line on the reply, its last parts dropped where it is too long; then why the reply ended early.

    `verbose` adds what a round costs.
    """
    stats = finish.stats
    said = reply_figures(stats) if stats.get("rounds") else []
    if said and prefill is not None:
        read = prefill.prompt_tokens - prefill.cached_tokens
        said.append((f"read {read} of {count(prefill.prompt_tokens, 'token')}", "dim"))
    reason = _reason(start, finish)
    return [
        *([fitted(said, [], width)] if said else []),
        *(costs(start, stats, width) if verbose else []),
        *([Text(reason, "yellow")] if reason else []),
    ]


def _reason(start: Start, finish: Finish) -> str:
    if finish.reason == "interrupted":
        return "interrupted: the conversation keeps the text above" if finish.text else ""
    if finish.reason == "repetition":
        return "stopped: the answer had become a loop; /set stop-repetition 0 goes on"
    if finish.reason != "length":
        return ""
    if start.context_limit is not None and start.prompt_tokens + start.max_tokens >= start.context_limit:
        return f"the context of {start.context_limit} tokens is full"
    return f"stopped at {start.max_tokens} tokens: /set max-tokens N"


def two_columns(rows: Sequence[tuple[str, str]]) -> Table:
    """Name and value, aligned, long values folded."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(safe(name), "bold"), Text(safe(value)))
    return table


def markdown(text: str, console: Console) -> Segments:
    """`text` as Markdown; links show their addresses, lines stay lines, and code needs no fence."""
    document = RichMarkdown(fenced(safe(text)), hyperlinks=False)
    for token in document.parsed:
        for part in token.children or ():
            if part.type == "softbreak":
                part.type = "hardbreak"
    rendered = console.render(document)
    return Segments([Segment(safe(part.text), part.style) for part in rendered if not part.control])


_FENCE = re.compile(r"\s*(```|~~~)")
_LISTED = re.compile(r"\s*([-*+>|]|\d+[.)])\s")
_CODE = re.compile(
    r"\t|  |(def|class|import|@\w+|async|#include|func|fn|const|var)\b.*[\w(){}:;\"'.]$|from \S+ import "
)


def fenced(text: str) -> str:
    """`text` with a fence around each block of lines that is code and has none: its lines would be folded into one.

    A block is code where a line is indented, unless it belongs to a list, or begins as code does.
    """
    shown: list[str] = []
    in_fence = listed = False
    for block in re.split(r"(\n(?:[ \t]*\n)+)", text):
        lines = block.split("\n")
        fences = sum(bool(_FENCE.match(line)) for line in lines)
        if not block.strip() or in_fence or fences:
            in_fence ^= fences % 2 == 1
            shown.append(block)
            continue
        listed = bool(_LISTED.match(lines[0])) or (listed and lines[0].startswith((" ", "\t")))
        code = not listed and any(_CODE.match(line) for line in lines)
        shown.append(f"~~~~\n{block.strip(chr(10))}\n~~~~" if code else block)
    return "".join(shown)


def toolbar(parts: Sequence[str], width: int) -> str:
    """The first `parts` that fit."""
    shown = [safe(part).replace("\n", " ") for part in parts]
    while len(shown) > 1 and len(SEPARATOR.join(shown)) > max(width - 2, 1):
        shown.pop()
    return SEPARATOR.join(shown)
