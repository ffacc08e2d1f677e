"""A trace as a picture or a page: its whole text, every token in the colour of its kind, and the panel at the end.

Tokens that were not said appear where they were proposed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.text import Text

from specdec_cli.core.events import Start
from specdec_cli.core.format import SEPARATOR
from specdec_cli.core.judged import TokenKind, TokenStream
from specdec_cli.core.kinds import kind_of
from specdec_cli.core.trace import Trace, TraceReply
from specdec_cli.terminal.export import COLUMNS, picture
from specdec_cli.terminal.panel.answer import ANSWER_STYLES, MARKS, MEANINGS, name_of
from specdec_cli.terminal.panel.frame import render
from specdec_cli.terminal.panel.state import PanelState, drafting
from specdec_cli.terminal.summary import summary
from specdec_cli.terminal.terminal import draw_controls, safe, visible

GLYPHS: Final[Mapping[TokenKind, str]] = {kind: mark for kind, mark in MARKS.items() if kind is not TokenKind.ACCEPTED}
"""Drawn before the token; with underline and strike-through they show the kind without colour."""
STYLES: Final = {
    **ANSWER_STYLES,
    TokenKind.ACCEPTED: f"{ANSWER_STYLES[TokenKind.ACCEPTED]} underline",
    TokenKind.DISCARDED: f"{ANSWER_STYLES[TokenKind.DISCARDED]} strike",
}


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
    """Every token of the reply, styled by its kind."""
    text, stream, colours = Text(overflow="fold"), TokenStream(), drafting(reply.start)
    for done in reply.rounds:
        stream.expect(done)
        for token in stream.feed(done.text):
            text.append_text(_token(*token, colours))
    for token in [*stream.feed(getattr(reply.end, "text_tail", "")), *stream.rest()]:
        text.append_text(_token(*token, colours))
    return text


def _token(kind: TokenKind, piece: str, said: bool, coloured: bool) -> Text:
    """The mark comes after the space with which most words begin; a line break is drawn as well as made."""
    style = STYLES[kind] if coloured else ""
    if not said:
        return Text(GLYPHS.get(kind, "") + visible(piece), style)
    shown = draw_controls(piece).replace("\n", "↵\n")
    word = shown.lstrip(" ")
    text = Text(shown[: len(shown) - len(word)] + GLYPHS.get(kind, "") * bool(word) + word)
    text.highlight_regex(r"\S+", style)
    return text


def legend() -> Text:
    """What the marks mean."""
    rows = []
    for kind, meaning in MEANINGS.items():
        name = f"{GLYPHS.get(kind, '')}{name_of(kind)}"
        rows.append(Text.assemble((name, STYLES[kind]), " " * (14 - len(name)), (meaning, "dim")))
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
