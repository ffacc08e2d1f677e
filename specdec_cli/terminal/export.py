"""A result as a picture (.svg) or a page (.html), as rich records it. One file that loads nothing, whatever its text.

The picture of a trace is its whole text, every token in the colour of its fate, and the panel as it stood at the end.
Tokens that were not said appear where they were proposed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from copy import copy
from html import escape, unescape
from typing import Final

from rich.cells import cell_len
from rich.color_triplet import ColorTriplet
from rich.console import Console, RenderableType
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from specdec_cli.core.events import Start
from specdec_cli.core.fates import Fate, TokenStream
from specdec_cli.core.kinds import kind_of
from specdec_cli.core.trace import Trace, TraceReply
from specdec_cli.terminal.html import sanitize
from specdec_cli.terminal.panel.answer import ANSWER_STYLES, MARKS, name_of
from specdec_cli.terminal.panel.frame import render
from specdec_cli.terminal.panel.state import PanelState, drafting
from specdec_cli.terminal.summary import SEPARATOR, summary
from specdec_cli.terminal.terminal import draw_controls, safe, visible

COLUMNS: Final = 88
GLYPHS: Final[Mapping[Fate, str]] = {fate: mark for fate, mark in MARKS.items() if fate is not Fate.ACCEPTED}
"""Drawn before the token; with underline and strike-through they show the fate without colour."""
THEME: Final = copy(SVG_EXPORT_THEME)
THEME.background_color = ColorTriplet(0, 0, 0)
"""On black the colours of an answer have the contrast that they were chosen for."""

MEANINGS: Final = {
    Fate.ACCEPTED: "drafted, and the target agreed",
    Fate.CORRECTION: "the target's own token in place of a rejected one",
    Fate.BONUS: "the target's own token after a fully accepted draft",
    Fate.PLAIN: "the target's own token where nothing was drafted",
    Fate.REJECTED: "drafted, and the target disagreed: not said",
    Fate.DISCARDED: "drafted after a rejected token, never judged: not said",
}
STYLES: Final = {
    **ANSWER_STYLES,
    Fate.ACCEPTED: f"{ANSWER_STYLES[Fate.ACCEPTED]} underline",
    Fate.DISCARDED: f"{ANSWER_STYLES[Fate.DISCARDED]} strike",
}
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


def trace_picture(trace: Trace, suffix: str) -> str:
    """Every reply of the trace, one below the other, and what the marks mean."""
    parts = []
    for reply in trace.replies:
        start, state = reply.start, PanelState()
        for event in reply.events():
            state = state.apply(event)
        parts += [Text.assemble((heading(start), "bold"), "\n", (settings(start), "dim"), "\n"), answer(reply)]
        parts += [Text("\n").append_text(render(state, COLUMNS, 40))]
        parts += [Text("\n").join([*summary(start, reply.finish, COLUMNS, below_panel=True), Text()])]
    return picture(f"specdec: {heading(trace.replies[0].start)}", [*parts, legend()], suffix)


def answer(reply: TraceReply) -> Text:
    """Every token of the reply, styled by its fate."""
    text, stream, colours = Text(overflow="fold"), TokenStream(), drafting(reply.start)
    for done in reply.rounds:
        stream.expect(done)
        for token in stream.feed(done.text):
            text.append_text(_token(*token, colours))
    for token in [*stream.feed(getattr(reply.end, "text_tail", "")), *stream.rest()]:
        text.append_text(_token(*token, colours))
    return text


def _token(fate: Fate, piece: str, said: bool, coloured: bool) -> Text:
    """The mark comes after the space with which most words begin; a line break is drawn as well as made."""
    style = STYLES[fate] if coloured else ""
    if not said:
        return Text(GLYPHS.get(fate, "") + visible(piece), style)
    shown = draw_controls(piece).replace("\n", "↵\n")
    word = shown.lstrip(" ")
    text = Text(shown[: len(shown) - len(word)] + GLYPHS.get(fate, "") * bool(word) + word)
    text.highlight_regex(r"\S+", style)
    return text


def legend() -> Text:
    """What the marks mean."""
    rows = []
    for fate, meaning in MEANINGS.items():
        name = f"{GLYPHS.get(fate, '')}{name_of(fate)}"
        rows.append(Text.assemble((name, STYLES[fate]), " " * (14 - len(name)), (meaning, "dim")))
    return Text("\n").join(rows)


def heading(start: Start) -> str:
    """The target, and the draft if there is one; of a folder the last part."""
    target, draft = (
        safe(name.rstrip("/").rpartition("/")[2] if name.count("/") > 1 else name.removeprefix("specdec:"))
        for name in (start.target, start.draft or "")
    )
    return f"{target} with {draft}" if draft else target


def settings(start: Start) -> str:
    """The settings in effect, in one line."""
    drafts = kind_of(start.drafter).drafts
    parts = [start.drafter, f"K {start.k}", f"rule {start.rule}"] if drafts else ["plain decoding"]
    parts += [f"held to a {start.constraint}, which drafts what it forces"] if start.constraint else []
    parts += [f"temperature {start.temperature:g}", *([] if start.seed is None else [f"seed {start.seed}"])]
    return safe(SEPARATOR.join([*parts, start.dtype, start.device]))
