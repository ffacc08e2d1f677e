"""Documents in the terminal. A pipe gets the document as it is, a terminal rendered, filtered and paged."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import ClassVar, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from specdec_cli.ui.spelling import spelled
from specdec_cli.ui.terminal import can_draw, is_terminal, make_console, safe, terminal_size

# Longer lines of prose are hard to read.
WIDEST = 100
PAGER = "less"
LESS = "-R"  # colours as they are


def print_topics(out: TextIO, topics: Sequence[tuple[str, str]], footer: str, plain: bool) -> None:
    """Every topic with its one line: a table on a terminal, tab-separated lines into a pipe."""
    if not is_terminal(out):
        for topic in topics:
            out.write(spelled("\t".join(map(safe, topic)) + "\n", out))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, summary in topics:
        table.add_row(Text(safe(name), "bold"), Text(safe(summary)))
    console = make_console(out, plain=plain)
    console.print(table)
    console.print()
    console.print(Text(safe(footer), "dim"))


def print_document(out: TextIO, text: str, plain: bool, environment: Mapping[str, str] = os.environ) -> None:
    """Markdown for a person: through the pager where it is longer than the screen, unless `plain` was asked for."""
    if not is_terminal(out):
        out.write(spelled(safe(text), out))
        return
    console = make_console(out, plain=plain)
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        console.print(_rendered(text, console))
    shown = spelled(captured.get(), out)
    too_long = shown.count("\n") >= terminal_size(out)[1]
    if plain or not too_long or not can_draw(out) or not _paged(shown, environment):
        out.write(shown)


def _rendered(text: str, console: Console) -> Segments:
    """`text` as Markdown, filtered before and after: Markdown makes characters of its own."""
    segments = console.render(_Document(safe(text), hyperlinks=False))
    return Segments([Segment(safe(part.text), part.style) for part in segments if not part.control])


def _paged(text: str, environment: Mapping[str, str]) -> bool:
    """Whether the user's pager has shown it."""
    command = shlex.split(environment.get("PAGER", PAGER))
    if not command:
        return False
    try:
        pager = subprocess.Popen(
            command, stdin=subprocess.PIPE, text=True, encoding="utf-8", env={"LESS": LESS, **environment}
        )
    except OSError:
        return False
    while pager.returncode is None:
        try:
            pager.communicate(text)
        except KeyboardInterrupt:  # the pager's own business: it stops a search, for one
            continue
    return True


class _LeftHeading(Heading):
    """A title, at the left as everything else."""

    LEVEL_ALIGN: ClassVar = {}


class _Code(CodeBlock):
    """Code without a background: the terminal's own colours stay readable."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text).rstrip(), "cyan", overflow="fold")


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
    }
