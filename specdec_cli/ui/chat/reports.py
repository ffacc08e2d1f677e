"""A chat's texts besides its answers. Law: Markdown is filtered after rendering, too: rendering makes characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from specdec_cli.events import Finish, Prefill, Start
from specdec_cli.format import count
from specdec_cli.ui.summary import SEPARATOR, costs, fitted, reply_figures
from specdec_cli.ui.terminal import safe

Rows = Sequence[tuple[str, str]]


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


def _fitting(parts: Iterable[str], width: int) -> str:
    shown = list(parts)
    while len(shown) > 1 and len(SEPARATOR.join(shown)) > width:
        shown.pop()
    return SEPARATOR.join(shown)


def two_columns(rows: Rows) -> Table:
    """Name and value, aligned, long values folded."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(safe(name), "bold"), Text(safe(value)))
    return table


def markdown(text: str, console: Console) -> Segments:
    """`text` as Markdown; links show their addresses, lines stay lines, and code needs no fence."""
    document = Markdown(fenced(safe(text)), hyperlinks=False)
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
    return _fitting([safe(part).replace("\n", " ") for part in parts], max(width - 2, 1))
