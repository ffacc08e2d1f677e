"""Markdown in the terminal: documents and answers, filtered before and after: it makes characters of its own.

A pipe gets a document as it is, a terminal rendered, filtered and paged.
"""

from __future__ import annotations

import os
import pydoc
import re
from typing import ClassVar, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from specdec_cli.terminal.terminal import can_draw, is_terminal, make_console, safe, terminal_size

WIDEST = 100
"""Longer lines of prose are hard to read."""


def print_document(out: TextIO, text: str, plain: bool) -> None:
    """For a person it is rendered, and paged where it is longer than the screen, unless `plain` was asked for."""
    if not is_terminal(out):
        out.write(safe(text))
        return
    console = make_console(out, plain=plain)
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        console.print(markdown(text, console))
    print_text(out, captured.get(), plain)


def print_text(out: TextIO, text: str, plain: bool) -> None:
    """`text` as it is, paged where it is longer than the screen, unless `plain` was asked for."""
    if plain or not can_draw(out) or text.count("\n") < terminal_size(out)[1]:
        out.write(text)
        return
    os.environ.setdefault("LESS", "-R")  # colours as they are
    pydoc.pager(text)


def markdown(text: str, console: Console, keeps_lines: bool = False) -> Segments:
    """`text` as Markdown, links with their addresses; with `keeps_lines` its lines are not joined to paragraphs."""
    document = _Document(safe(text), hyperlinks=False)
    for token in document.parsed if keeps_lines else ():
        for part in token.children or ():
            if part.type == "softbreak":
                part.type = "hardbreak"
    return Segments([Segment(safe(part.text), part.style) for part in console.render(document) if not part.control])


# A fence, an item of a list, a heading. One # before a line of text is a comment in half of all languages.
BLOCKS = re.compile(r"^ {0,3}(?:```|~~~|[-*+] +\S|\d{1,9}[.)] +\S|#{2,6} +\S)|(?:\A|\n\n)# +\S.*(?:\n\n|\n?\Z)", re.M)


def is_markdown(text: str) -> bool:
    """Whether `text` has a block that only Markdown explains; single marks, as in `a * b`, tell nothing."""
    return BLOCKS.search(text) is not None


class _LeftHeading(Heading):
    """A title, at the left as everything else."""

    LEVEL_ALIGN: ClassVar = {}


class _Code(CodeBlock):
    """Code without a background: the terminal's own colours stay readable."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text).rstrip(), "cyan", overflow="fold")


class _Table(TableElement):
    """A table whose cells show their whole words, as an address or the name of a variable."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Document(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }
