"""A result as a picture (.svg) or a page (.html), as rich records it: one file that loads nothing."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from copy import copy
from html import escape, unescape
from typing import Final

from rich.cells import cell_len
from rich.color_triplet import ColorTriplet
from rich.console import Console, RenderableType
from rich.terminal_theme import SVG_EXPORT_THEME

from specdec_cli.terminal.html import sanitize

COLUMNS: Final = 88
THEME: Final = copy(SVG_EXPORT_THEME)
THEME.background_color = ColorTriplet(0, 0, 0)
"""On black the colours of an answer have the contrast that they were chosen for."""

_SVG: Final = """\
<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px "Fira Code", Menlo, "DejaVu Sans Mono", monospace }}
.{unique_id}-title {{ font: bold 18px sans-serif }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""
_HTML: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
{{stylesheet}}
body {{{{ color: {{foreground}}; background: {{background}}; margin: 2rem }}}}
pre {{{{ font: 14px/1.35 Menlo, "DejaVu Sans Mono", Consolas, monospace }}}}
</style></head>
<body><pre><code style="font: inherit">{{code}}</code></pre></body></html>
"""
_RUN: Final = re.compile(r'textLength="[\d.]+"( clip-path="[^"]*")>([^<]*)<')
_CELL: Final = 12.2
"""Pixels of a cell in rich's pictures."""


def recorder(columns: int = COLUMNS) -> Console:
    """A console that keeps what is printed on it for `export_recorded`."""
    return Console(
        record=True, file=io.StringIO(), width=columns, force_terminal=True, color_system="truecolor",
        no_color=False, markup=False, highlight=False, emoji=False,
    )  # fmt: skip


def export_recorded(console: Console, suffix: str, title: str) -> str:
    """What was printed on a `recorder`, as the text of a file that ends in `suffix`: .svg or .html."""
    if suffix.lower() == ".html":
        heading = escape(title).replace("{", "{{").replace("}", "}}")
        return sanitize(console.export_html(theme=THEME, code_format=_HTML.format(title=heading)))

    def fit(run: re.Match[str]) -> str:
        """rich gives a run one cell for each character, wide ones too."""
        return f'textLength="{cell_len(unescape(run[2])) * _CELL:.1f}"{run[1]}>{run[2]}<'

    return sanitize(_RUN.sub(fit, console.export_svg(title=title, theme=THEME, code_format=_SVG)))


def picture(title: str, parts: Iterable[RenderableType], suffix: str, columns: int = COLUMNS) -> str:
    """`parts`, one below the other, as a picture or a page."""
    console = recorder(columns)
    for part in parts:
        console.print(part)
    return export_recorded(console, suffix, title)
