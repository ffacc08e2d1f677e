"""The panel's figures: acceptance, positions, speed, tokens per pass. Each row fits its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from specdec_cli.format import percent, speed
from specdec_cli.gain import Gain
from specdec_cli.stats import ratio
from specdec_cli.ui.panel.answer import GUESSED
from specdec_cli.ui.panel.rounds import LABEL, labelled
from specdec_cli.ui.summary import reliable_pace
from specdec_cli.ui.terminal import MUTED

LOSING: Final = "color(172)"
_SHORTEST_BAR: Final = 10
_WIDEST_COLUMN: Final = 9
_BLOCKS = "▁▂▃▄▅▆▇█"
_POSITION_SPELLINGS = (("{n} {bar} {rate}", "   "), ("{n} {bar} {rate}", "  "), ("{bar}{rate}", " "), ("{bar}", ""))


def acceptance(figures: Mapping[str, Any], gain: Gain | None, width: int) -> Text:
    """accepted ━━━━╋━━━━──── 61 % of drafted ╋ pays from ≈ 45 % (35–60); the last where that is known well enough."""
    rate = figures["draft_acceptance_rate"]
    if rate is None:
        return labelled("accepted", Text("nothing drafted so far", "dim"), Text(), width)
    shown = f"{percent(rate):>5}"
    known = gain if gain and gain.pays_from else None
    pays = f"  ╋ {known.pays_from}" if known else ""
    for words, end in ((" of drafted", pays), ("", pays), ("", "")):
        right = Text.assemble((shown, "bold"), words, (end, "dim"))
        if width - LABEL - right.cell_len - 2 >= _SHORTEST_BAR:
            break
    right.highlight_regex("╋", "not dim")
    return labelled("accepted", bar(rate, known, max(width - LABEL - right.cell_len - 2, 0)), right, width)


def bar(rate: float | None, gain: Gain | None, width: int) -> Text:
    """0 … 1 on `width` cells: filled ━, the rest ─, crossed where drafting starts to pay, by a known `gain`.

    The colour is that of a loss only where all of the doubt about that place lies beyond the rate.
    """
    reached = round((rate or 0.0) * 2 * width)
    share, sure = (gain.break_even, gain.break_even_low) if gain else (None, None)
    losing = rate is not None and sure is not None and rate < sure
    filled = Text("━" * (reached // 2) + "╸" * (reached % 2), LOSING if losing else GUESSED)
    drawn = filled.append("─" * (width - filled.cell_len), MUTED)
    if share is None:
        return drawn
    crossing = min(width - 1, round(share * width))
    mark = ("╋" if 2 * crossing + 1 < reached else "┼", "bold")
    return Text.assemble(drawn[:crossing], mark, drawn[crossing + 1 :])


def positions(
    figures: Mapping[str, Any],
    width: int,
    label: str = "position",
    meaning: str = "position 1: the first token of a draft",
) -> Text:
    """position 1 ▇ 80   2 ▆ 69 %: accepted at each of the draft; without figures where they do not fit."""
    rates: Sequence[float] = figures["acceptance_per_position"]
    if not rates:
        return labelled("", Text(), Text(), width)
    for spelled, gap in _POSITION_SPELLINGS:
        drawn = Text(gap).join(_position(spelled, place, rate) for place, rate in enumerate(rates, 1))
        if "rate" in spelled:
            drawn.append(" %")
        if drawn.cell_len <= width - LABEL:
            break
    fits = drawn.cell_len + len(meaning) + LABEL + 4 <= width
    return labelled(label, drawn, Text(meaning if fits else "", "dim"), width)


def _position(spelled: str, place: int, rate: float) -> Text:
    text = Text(spelled.format(n=place, bar=_BLOCKS[min(7, int(8 * rate))], rate=round(100 * rate)))
    text.highlight_regex(f"[{_BLOCKS}]", GUESSED)
    if "{n}" in spelled:
        text.stylize("dim", 0, len(str(place)))
    return text


def average(figures: Mapping[str, Any], width: int) -> Text:
    """tokens per pass 3.4"""
    mean = figures["mean_acceptance_length"]
    words = "tokens per pass " if width >= 62 else "per pass "
    return Text.assemble((words, "dim"), ("–" if mean is None else f"{mean:.1f}", "bold"))


def tokens_per_pass(counts: Sequence[int], figures: Mapping[str, Any], width: int) -> list[Text]:
    """How many of the passes gave 1, 2, … tokens: columns of two rows, and below them the tokens and the shares."""
    room = width - LABEL
    passes = sum(counts)
    shares = [counted / passes for counted in counts[1:]] if passes else []
    cells = min(room // max(len(shares), 1), _WIDEST_COLUMN)
    if not shares or cells < 2:
        return [labelled("tokens", Text(), average(figures, width), width)]
    highest = max(shares)
    names = [f"{tokens}: {percent(share)}" for tokens, share in enumerate(shares, 1)]
    if max(map(len, names)) > cells - 2:
        names = [str(tokens) if tokens % 2 or cells > 2 else "" for tokens in range(1, len(shares) + 1)]
    rows = ["".join(f"{_column(share / highest, row) * (cells - 1):<{cells}}" for share in shares) for row in (1, 0)]
    named = "".join(f"{name:<{cells}}" for name in names).rstrip()
    unit, label = Text("tokens per pass", "dim"), "gave"
    if len(named) + unit.cell_len + 2 > room:
        unit, label = Text(), "tokens"
    mean = Text(f"mean {figures['mean_acceptance_length']:.1f}", "bold") if unit else Text()
    return [
        labelled("passes", Text(rows[0], GUESSED), Text(), width),
        labelled("", Text(rows[1], GUESSED), mean, width),
        labelled(label, Text(named), unit, width),
    ]


def _column(share: float, row: int) -> str:
    """One cell of a column that is `share` of two rows high; `row` counts from below. No share at all is empty."""
    eighths = round(16 * share) or (1 if share else 0)
    return " " if eighths <= 8 * row else _BLOCKS[min(eighths - 8 * row, 8) - 1]


def pace(figures: Mapping[str, Any], gain: Gain | None, width: int) -> Text:
    """speed 134 tok/s, without drafting ≈ 96: and the share of the time that drafting took."""
    measured = reliable_pace(figures)
    share = ratio(figures["draft_seconds"], figures["draft_seconds"] + figures["verify_seconds"])
    now = (speed(measured), "bold")
    told = gain if gain and gain.verdict != "cannot tell yet" else None
    plain = f"≈ {speed(measured / told.speedup).removesuffix(' tok/s')}" if told and measured else ""
    drafting = f"draft takes {percent(share)} of the time" if figures["draft_n"] and share is not None else ""
    long, short = (Text.assemble(now, f", {words} {plain}" if plain else "") for words in ("without drafting", "plain"))
    for left, right in ((long, drafting), (short, drafting), (short, drafting[:-12]), (short, "")):
        if LABEL + left.cell_len + len(right) + 2 <= width:
            break
    return labelled("speed", left, Text(right, "dim"), width)
