"""Kept chats in the terminal. Everything comes from files, and is filtered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from rich.table import Table
from rich.text import Text

from specdec_cli.terminal.markdown import print_text
from specdec_cli.terminal.terminal import is_terminal, make_console, safe


def print_chats(out: TextIO, rows: Sequence[Sequence[str]]) -> None:
    """Number, day, pair, turns, first words: a table, or into a pipe tab-separated lines."""
    lines = [[" ".join(safe(cell).split()) for cell in row] for row in rows]
    if not is_terminal(out):
        out.writelines("\t".join(line) + "\n" for line in lines)
        return
    console = make_console(out, plain=False)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("", justify="right", style="bold", no_wrap=True)
    table.add_column("last turn", no_wrap=True)
    table.add_column("pair", no_wrap=True, overflow="ellipsis", max_width=console.width // 5)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("begins")
    for *cells, words in lines:
        table.add_row(*map(Text, cells), Text(words, no_wrap=True, overflow="ellipsis"))
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
