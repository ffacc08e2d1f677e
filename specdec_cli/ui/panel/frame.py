"""Draws a PanelState (pure). Law: no row is too wide and no frame too tall; marks differ in shape, too."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from specdec_cli.format import count, percent, speed
from specdec_cli.kinds import kind_of
from specdec_cli.ui.panel import gauges
from specdec_cli.ui.panel.rounds import FATES, round_row, shortened, spread
from specdec_cli.ui.panel.state import KEPT_ROUNDS, PanelState
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.terminal import MUTED, safe

WIDEST: Final = 110
NARROWEST: Final = 36
LOWEST: Final = 8
"""Below these sizes a single status line replaces the panel."""

_LEGENDS = (
    "✓ accepted   ✗ rejected   · discarded   ➜ target's own   ★ bonus",
    "✓ accepted  ✗ rejected  · discarded  ➜ target  ★ bonus",
)


def render(state: PanelState, width: int, height: int) -> Text:
    """The panel for a screen of `width` × `height` cells, rows joined by newlines."""
    return Text("\n").join(frame_rows(state, width, height))


def frame_rows(state: PanelState, width: int, height: int) -> list[Text]:
    """The panel's rows: at most `height` - 2, so that two lines of the answer stay visible."""
    if width < NARROWEST or height < LOWEST:
        return [_status(state, width)] if height > 2 else []
    width = min(width, WIDEST)
    top = _border("╭╮", _titles(state), _totals(state), width)
    bottom = _border("╰╯", [Text()], [Text()], width)
    return [top, *(_boxed(row, width) for row in _body(state, width - 4, height - 4)), bottom]


def _body(state: PanelState, width: int, room: int) -> list[Text]:
    """The rows inside the box, at most `room` ≥ 4. Dropped first: history, then the legend, then the positions."""
    if not state.recent:
        return [_waiting(state)]
    figures = state.figures
    below = [gauges.acceptance(figures, width)] if state.drafts else []
    if state.drafts and room > 3:
        below.append(gauges.positions(figures, width))
    below.append(gauges.pace(figures, width))
    if state.adapts and room > 5:
        below.insert(-1, gauges.lengths(state.ks[1:], state.recent[0].round.why, width))
    legend = next((words for words in _LEGENDS if len(words) <= width), None)
    if state.drafts and legend and room > len(below) + 2:
        below.append(_legend(legend))
    return _rounds(state, width, min(KEPT_ROUNDS, room - len(below))) + below


def _rounds(state: PanelState, width: int, kept: int) -> list[Text]:
    """The newest rounds. Blank rows keep the height while they come; a finished panel has none."""
    recent = state.recent[:kept]
    index_width = max(2, *(len(str(done.round.index)) for done in recent), 0)
    several = state.start is not None and kind_of(state.start.drafter).mixed
    rows = [
        round_row(done, width, index_width, not place and not state.ended, done.round.drafter if several else "")
        for place, done in enumerate(recent)
    ]
    return rows if state.ended else rows + [Text()] * (kept - len(rows))


def _waiting(state: PanelState) -> Text:
    if state.start is None or state.ended:
        return Text("nothing was generated" if state.ended else "…", "dim")
    if state.prefill is not None:
        return Text("read the prompt, first token…", "dim")
    return Text(f"reading the prompt, {count(state.start.prompt_tokens, 'token')}…", "dim")


def _titles(state: PanelState) -> list[Text]:
    """NAME · drafter (unless it is the draft model) · K · rule, from the longest to the shortest spelling."""
    start = state.start
    if start is None:
        return [Text.assemble((safe(state.name), "bold"))]
    parts = [] if kind_of(start.drafter).draft_alone else [start.drafter]
    parts = [*parts, f"K {start.k}", start.rule] if state.drafts else ["plain decoding"]
    name = safe(state.name or start.target.rstrip("/").rpartition("/")[2]).replace("\n", " ")
    spellings = [SEPARATOR.join(["", *parts[:kept]]) for kept in range(len(parts), -1, -1)]
    return [Text.assemble((name, "bold"), safe(spelling)) for spelling in spellings]


def _totals(state: PanelState) -> list[Text]:
    """Target passes and tokens, from the longest to the shortest spelling."""
    passes, tokens = state.figures["target_passes"], state.figures["emitted_tokens"]
    if not passes:
        return [Text()]
    counted = f"{count(passes, 'target pass')} for {count(tokens, 'token')}"
    spellings = [f"{counted}{SEPARATOR}{tokens - passes} saved"] if tokens > passes else []
    return [Text(words) for words in (*spellings, counted, f"{tokens} in {count(passes, 'pass')}")]


def _border(ends: str, lefts: list[Text], rights: list[Text], width: int) -> Text:
    """A horizontal edge with words in it; the right end is shortened first, then the left one."""
    room = width - 9  # ends, dashes and spaces around both
    pairs = [(lefts[0], right) for right in rights] + [(left, rights[-1]) for left in lefts]
    left, right = next((pair for pair in pairs if pair[0].cell_len + pair[1].cell_len <= room), (lefts[-1], Text()))
    left = left.copy()
    left.truncate(room, overflow="ellipsis")
    words = [Text.assemble(" ", end, " ") if end else Text() for end in (left, right)]
    dashes = "─" * (width - 4 - words[0].cell_len - words[1].cell_len)
    edges = ((ends[0] + "─", MUTED), (dashes, MUTED), ("─" + ends[1], MUTED))
    return Text.assemble(edges[0], words[0], edges[1], words[1], edges[2])


def _boxed(row: Text, width: int) -> Text:
    side = ("│", MUTED)
    return Text.assemble(side, " ", spread(row, Text(), width - 4), " ", side)


def _legend(words: str) -> Text:
    legend = Text.assemble((words, "dim"))
    for glyph, colour in FATES.items():
        legend.highlight_regex(glyph, f"not dim {colour}")
    return legend


def _status(state: PanelState, width: int) -> Text:
    """The most important figures, in one line."""
    figures = state.figures
    if not figures["target_passes"]:
        return Text(shortened(_waiting(state).plain, width))
    counted = f"{figures['emitted_tokens']} tokens in {count(figures['target_passes'], 'pass')}"
    parts = [speed(figures["tokens_per_second"]), f"{percent(figures['draft_acceptance_rate'])} accepted", counted]
    if figures["draft_acceptance_rate"] is None:
        del parts[1]
    while len(parts) > 1 and len(SEPARATOR.join(parts)) > width:
        parts.pop()
    return Text(shortened(SEPARATOR.join(parts), width))
