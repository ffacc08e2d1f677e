"""Draws a PanelState (pure). No row is too wide and no frame too tall; marks differ in shape, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.text import Text

from specdec_cli.core.events import Start
from specdec_cli.core.format import SEPARATOR, count, duration, percent, speed
from specdec_cli.core.gain import unknown_words
from specdec_cli.core.kinds import kind_of
from specdec_cli.core.progress import Step
from specdec_cli.terminal.panel.box import boxed, edge, shortened, spread
from specdec_cli.terminal.panel.rounds import legends, round_rows
from specdec_cli.terminal.panel.state import KEPT_ROUNDS, PanelState
from specdec_cli.terminal.panel.status import READING, reading_step, status_row
from specdec_cli.terminal.summary import machines, reason, reliable_pace, verdict_style
from specdec_cli.terminal.terminal import MUTED, safe

WIDEST: Final = 120
NARROWEST: Final = 56
LOWEST: Final = 8
"""Below these sizes one line replaces the panel."""


def render(state: PanelState, width: int, height: int) -> Text:
    """The panel for a screen of `width` × `height` cells, rows joined by newlines."""
    return Text("\n").join(frame_rows(state, width, height))


def frame_rows(state: PanelState, width: int, height: int, most_rounds: int = KEPT_ROUNDS) -> list[Text]:
    """The panel's rows, half of the screen at most: the other half stays the answer's.

    It is as high with its first round as with its last, and ends with the rounds that it has.
    """
    if width < NARROWEST or height < LOWEST:
        return [_line(state, width)] if height > 2 else []
    width = min(width, WIDEST)
    top = edge("╭╮", _titles(state), _verdict(state), width)
    if not state.recent or state.start is None:
        return [top, boxed(_waiting(state, width - 4), width), edge("╰╯", [Text()], _held(state), width)]
    most = min(most_rounds, height // 2 - 3)
    rounds = round_rows(state.recent[-most:], state.start, width - 4) if most else []
    blank, why = [] if state.ended else [Text()] * (most - len(rounds)), Text(_why(state), "dim")
    middle = [edge("├┤", [why, Text()], [Text()], width)] if most or why else []
    bottom = edge("╰╯", legends(state.drafts), _held(state), width)
    drawn = [boxed(row, width) for row in (*rounds, *blank, _sums(state, width - 4))]
    return [top, *drawn[:-1], *middle, drawn[-1], bottom]


def _sums(state: PanelState, width: int) -> Text:
    """accepted 62 % of drafted · by position 81 70 55 41 %, and the speed."""
    figures = state.figures
    pace = Text(speed(reliable_pace(figures)), "bold")
    if not state.drafts:
        return spread(Text("plain decoding: one token per pass", "dim"), pace, width)
    rate, rates = figures["draft_acceptance_rate"], figures["acceptance_per_position"]
    if rate is None:
        return spread(Text(f"nothing was drafted{' so far' * (not state.ended)}", "dim"), pace, width)
    for words in (" of drafted", ""):
        found = Text.assemble("accepted ", (percent(rate), "bold"), words)
        places = by_position(rates, width - pace.cell_len - found.cell_len - 1, SEPARATOR)
        if places and "…" not in places.plain:
            break
    return spread(found + places, pace, width)


def by_position(rates: Sequence[float], width: int, before: str = "") -> Text:
    """by position 81 70 55 41 %: accepted ÷ drafted at each position of a draft, the first ones where not all fit."""
    shown = [f"{100 * rate:.0f}" for rate in rates]
    for kept in range(len(shown), 0, -1):
        words = f"{before}by position {' '.join(shown[:kept])}{' …' * (kept < len(shown))} %"
        if len(words) <= width:
            return Text(words)
    return Text()


def _waiting(state: PanelState, width: int) -> Text:
    """What is read of the prompt, for how long, and how long the rest will take at that pace."""
    if state.start is None or state.ended:
        return Text("nothing was generated" if state.ended else "…", "dim")
    step, spent = reading_step(state.start.prompt_tokens, state.reading), state.now - state.began
    if state.prefill is not None and not step.part:
        return Text(status_row("read the prompt, first token", Step(), spent, width), "dim")
    if step.done and not step.part and (took := state.read_at - state.began) >= 1:
        left = max(took * step.of / step.done - spent, 0)
        step = replace(step, note=f"about {duration(round(left))} left")
    return Text(status_row(READING, step, spent, width), "dim")


def _name(state: PanelState) -> str:
    target = state.start.target.rstrip("/").rpartition("/")[2] if state.start else ""
    return safe(state.name or target).replace("\n", " ")


def _held(state: PanelState) -> list[Text]:
    """How much each of several machines holds."""
    return [*(Text(held, "dim") for held in machines(state.start)[1:]), Text()]


def _settings(state: PanelState) -> list[str]:
    """How many machines, what the answer must be, who drafts, unless it is the draft model, and K."""
    start = state.start
    if start is None:
        return []
    shared = machines(start)[:1]
    if not state.drafts:
        return [*shared, "plain decoding"]
    return [*shared, *filter(None, [start.constraint]), *who_drafts(start), f"K {start.k}"]


def who_drafts(start: Start) -> list[str]:
    """The kind that drafts, unless it is the draft model, or several do."""
    kind = kind_of(start.drafter)
    return [start.drafter] if kind.drafts and not (kind.draft_alone or kind.mixed) else []


def _progress(state: PanelState) -> tuple[str, str]:
    """The newest round; at the end the tokens and the target's passes: in full, and shorter."""
    if not state.ended:
        number = f"round {state.recent[-1].round.index + 1}" if state.recent else ""
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
    shared = machines(state.start)[:1]
    return [_titled(state, parts) for parts in ([*settings, progress], [*shared, progress], [progress], [shorter], [])]


def _verdict(state: PanelState) -> list[Text]:
    """What drafting gained, in words; while that is unknown, that it is."""
    if state.gain is not None:
        return [Text(state.gain.sentence, verdict_style(state.gain.verdict)), Text()]
    if not state.figures["draft_n"]:
        return [Text()]
    return [Text(unknown_words(state.figures["rounds"] - 1) if state.ended else "cannot tell yet", "dim"), Text()]


def _why(state: PanelState) -> str:
    """Why this round's K, where K is chosen each round."""
    if not state.recent or state.start is None or state.start.k != "auto":
        return ""
    return (reason(state.figures) if state.ended else safe(state.recent[-1].round.why)).replace("\n", " ")


def _line(state: PanelState, width: int) -> Text:
    """The panel in one line: the title, the most important figures as far as they fit, and the verdict."""
    figures = state.figures
    if not figures["target_passes"]:
        return Text(shortened(_waiting(state, width).plain, width))
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
