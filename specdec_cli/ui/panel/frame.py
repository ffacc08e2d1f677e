"""Draws a PanelState (pure). No row is too wide and no frame too tall; marks differ in shape, too."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from specdec_cli.format import count, duration, percent, speed
from specdec_cli.gain import unknown_words
from specdec_cli.kinds import kind_of
from specdec_cli.ui.panel import gauges
from specdec_cli.ui.panel.rounds import STYLES, boxed, edge, labelled, own_token, round_rows, shortened, strip
from specdec_cli.ui.panel.state import PanelState
from specdec_cli.ui.summary import SEPARATOR, reason, reliable_pace, verdict_style
from specdec_cli.ui.terminal import MUTED, safe

WIDEST: Final = 120
NARROWEST: Final = 56
LOWEST: Final = 12
"""Below these sizes one line replaces the panel."""

_LEGENDS = (
    (("✓ accepted", "✗ rejected", "· discarded", "↳ the target's own"), "   "),
    (("✓ accepted", "✗ rejected", "↳ the target's own"), "  "),
)
RULE: Final = None
"""A row of the body that is a line across the box."""


def render(state: PanelState, width: int, height: int, small: bool = False) -> Text:
    """The panel for a screen of `width` × `height` cells, rows joined by newlines; `small` is one line."""
    return Text("\n").join(frame_rows(state, width, height, small))


def frame_rows(state: PanelState, width: int, height: int, small: bool = False) -> list[Text]:
    """The panel's rows: at most `height` - 2, so that two lines of the answer stay visible."""
    if small or width < NARROWEST or height < LOWEST:
        return [_line(state, width)] if height > 2 else []
    width = min(width, WIDEST)
    top = edge("╭╮", _titles(state), _verdict(state), width)
    bottom = edge("╰╯", [Text()], _legends(state), width)
    middle = edge("├┤", [Text(_why(state), "dim"), Text()], [Text()], width)
    return [top, *(middle if row is RULE else boxed(row, width) for row in _body(state, width - 4)), bottom]


def _body(state: PanelState, width: int) -> list[Text | None]:
    """The rows inside the box."""
    if state.shown is None or (state.ended and not state.stats.rounds):
        return [_waiting(state)]
    figures = state.figures
    speed_row = gauges.pace(figures, state.gain, width)
    if not state.drafts:
        row = labelled("target", own_token(state.shown, width), Text("one pass → one token", "dim"), width)
        return [speed_row] if state.ended else [row, speed_row]
    if state.ended and not figures["draft_n"]:
        return [Text("nothing was drafted", "dim"), RULE, speed_row]
    if state.ended:
        tokens = gauges.tokens_per_pass(state.tokens_per_pass, figures, width)
    else:
        mixed = state.start and (kind_of(state.start.drafter).mixed or state.start.constraint is not None)
        rounds = round_rows(state.shown, width, state.shown.round.drafter if mixed else "")
        tokens = [*rounds, strip(state.recent, state.shown, gauges.average(figures, width), width)]
    gained = (gauges.acceptance(figures, state.gain, width), gauges.positions(figures, width), speed_row)
    return [*tokens, RULE, *gained]


def _waiting(state: PanelState) -> Text:
    if state.start is None or state.ended:
        return Text("nothing was generated" if state.ended else "…", "dim")
    if state.prefill is not None:
        return Text("read the prompt, first token…", "dim")
    read = f"{state.reading.read_tokens:,} of ".replace(",", " ") if state.reading else ""
    return Text(f"reading the prompt, {read}{count(state.start.prompt_tokens, 'token')}{_time_left(state)}…", "dim")


def _time_left(state: PanelState) -> str:
    """The share of the prompt that was read, for how long it has been, and how long the rest will take at that pace."""
    spent = state.read_at - state.began
    if state.reading is None or spent < 1 or not state.reading.read_tokens:
        return ""
    share = state.reading.read_tokens / state.reading.prompt_tokens
    left = duration(round(spent / share - spent))
    return f"{SEPARATOR}{percent(share)} in {duration(round(spent))}, about {left} left"


def _name(state: PanelState) -> str:
    target = state.start.target.rstrip("/").rpartition("/")[2] if state.start else ""
    return safe(state.name or target).replace("\n", " ")


def _settings(state: PanelState) -> list[str]:
    """What the answer must be, who drafts, unless it is the draft model, and K."""
    start = state.start
    if start is None:
        return []
    if not state.drafts:
        return ["plain decoding"]
    kind = kind_of(start.drafter)
    named = kind.drafts and not (kind.draft_alone or kind.mixed)
    return [*filter(None, [start.constraint, start.drafter if named else None]), f"K {start.k}"]


def _progress(state: PanelState) -> tuple[str, str]:
    """The round that is drawn; at the end the tokens and the target's passes: in full, and shorter."""
    if not state.ended:
        number = f"round {state.shown.round.index + 1}" if state.shown else ""
        return number, number
    tokens, passes = state.figures["emitted_tokens"], state.figures["target_passes"]
    if not passes:
        return "", ""
    return f"{count(tokens, 'token')} in {count(passes, 'pass')}", f"{tokens} in {count(passes, 'pass')}"


def _titled(state: PanelState, parts: list[str]) -> Text:
    return Text.assemble((_name(state), "bold"), SEPARATOR.join(["", *filter(None, map(safe, parts))]))


def _titles(state: PanelState) -> list[Text]:
    """NAME · K · round, from the longest to the shortest spelling."""
    settings, (progress, shorter) = _settings(state), _progress(state)
    return [_titled(state, parts) for parts in ([*settings, progress], [progress], [shorter], [])]


def _verdict(state: PanelState) -> list[Text]:
    """What drafting gained, in words; nothing before the end while that is unknown."""
    if state.gain is not None:
        return [Text(state.gain.sentence, verdict_style(state.gain.verdict)), Text()]
    if state.ended and state.figures["draft_n"]:
        return [Text(unknown_words(state.figures["rounds"] - 1)), Text()]
    return [Text()]


def _why(state: PanelState) -> str:
    """Why this round's K, where K is chosen each round."""
    done = state.recent[-1] if state.ended and state.recent else state.shown
    if done is None or state.start is None or state.start.k != "auto":
        return ""
    return (reason(state.figures) if state.ended else safe(done.round.why)).replace("\n", " ")


def _legends(state: PanelState) -> list[Text]:
    """What the marks mean; their colours are those of the answer, too."""
    if not state.drafts or state.shown is None:
        return [Text()]
    drawn = [Text(gap).join(Text(words, STYLES[words[0]]) for words in marks) for marks, gap in _LEGENDS]
    return [*drawn, Text()]


def _line(state: PanelState, width: int) -> Text:
    """The panel in one line: the title, the most important figures as far as they fit, and the verdict."""
    figures = state.figures
    if not figures["target_passes"]:
        return Text(shortened(_waiting(state).plain, width))
    rate = figures["draft_acceptance_rate"]
    accepted = [] if rate is None else [f"{percent(rate)} accepted"]
    parts = [*_settings(state), _progress(state)[0], *accepted, speed(reliable_pace(figures))]
    verdict = _verdict(state)[0]
    for kept in (parts, parts[1:], parts[-2:], parts[-1:]):
        left = _titled(state, kept)
        if left.cell_len + verdict.cell_len + 4 <= width:
            gap = (" " + "─" * (width - left.cell_len - verdict.cell_len - 2) + " ", MUTED) if verdict else ""
            return Text.assemble(left, gap, verdict)
    return Text(shortened(SEPARATOR.join([parts[-1], *accepted]), width))
