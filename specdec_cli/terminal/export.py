"""What a terminal shows as a picture, or as part of a page, as rich records it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from copy import copy
from html import unescape
from typing import Final

from rich.cells import cell_len
from rich.color_triplet import ColorTriplet
from rich.console import Console, RenderableType
from rich.terminal_theme import SVG_EXPORT_THEME

from specdec_cli.terminal.html import Markup, sanitize

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
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g></g>
</svg>
"""
_RUN: Final = re.compile(r'textLength="[\d.]+"( clip-path="[^"]*")>([^<]*)<')
_CELL: Final = 12.2
"""Pixels of a cell in rich's pictures."""


def recorder(columns: int) -> Console:
    """A console that keeps what is printed on it."""
    return Console(
        record=True, file=io.StringIO(), width=columns, force_terminal=True, color_system="truecolor",
        no_color=False, markup=False, highlight=False, emoji=False,
    )  # fmt: skip


def picture(title: str, parts: Iterable[RenderableType], columns: int = COLUMNS) -> str:
    """`parts`, one below the other, as an SVG picture: one file that loads nothing."""
    console = recorder(columns)
    for part in parts:
        console.print(part)

    def fit(run: re.Match[str]) -> str:
        """rich gives a run one cell for each character, wide ones too."""
        return f'textLength="{cell_len(unescape(run[2])) * _CELL:.1f}"{run[1]}>{run[2]}<'

    return sanitize(_RUN.sub(fit, console.export_svg(title=title, theme=THEME, code_format=_SVG)))


def as_markup(console: Console) -> Markup:
    """What was printed on a `recorder`, for a `pre` on black."""
    return Markup(sanitize(console.export_html(theme=THEME, inline_styles=True, code_format="{code}")))
