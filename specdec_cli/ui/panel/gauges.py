"""The panel's running figures: acceptance, positions, pace. Law: each row fits its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from specdec_cli.format import percent, speed
from specdec_cli.stats import ratio
from specdec_cli.ui.panel.rounds import spread
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.terminal import MUTED

USUAL: Final = (0.5, 0.8)
"""Acceptance rates that most pairs reach; below them drafting rarely pays."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_POSITION_SPELLINGS = (("{n} {bar} {rate} %", "   "), ("{n} {bar} {rate}", "  "), ("{bar}{rate}", " "), ("{bar}", ""))


def acceptance(figures: Mapping[str, Any], width: int) -> Text:
    """accepted 62 % of drafted, a bar with the usual band marked, and the rate among judged tokens."""
    rate = figures["draft_acceptance_rate"]
    wide = width >= 50
    label = ("accepted     " if wide else "accepted ", "dim")
    padding = " " * (5 - len(percent(rate)))  # the bar must not move when the rate gains a digit
    left = Text.assemble(label, (percent(rate), "bold"), " of drafted" if wide else "", padding, "  ")
    usual = (f"  usual {100 * USUAL[0]:.0f}–{100 * USUAL[1]:.0f} %", "dim") if width >= 70 else ""
    right = Text.assemble(usual, f"  {percent(figures['judged_acceptance_rate']):>5} of judged" if wide else "")
    return Text.assemble(left, bar(rate, width - left.cell_len - right.cell_len), right)


def bar(rate: float | None, width: int) -> Text:
    """0 … 1 on `width` cells: filled ━, the rest ─, with the ends of the usual band crossed."""
    reached = round((rate or 0.0) * 2 * width)
    crossings = {min(width - 1, round(edge * width)) for edge in USUAL}
    colour = "yellow" if rate is not None and rate < USUAL[0] else "green"
    drawn = Text()
    for cell in range(width):
        filled = reached - 2 * cell
        usual = USUAL[0] <= (cell + 0.5) / width <= USUAL[1]
        if filled > 1:
            drawn.append("╋" if cell in crossings else "━", colour)
        elif cell in crossings:
            drawn.append("┼", "default")
        else:
            drawn.append("╸" if filled == 1 else "╌" if usual else "─", colour if filled == 1 else MUTED)
    return drawn


def positions(figures: Mapping[str, Any], width: int) -> Text:
    """Acceptance by position in the draft as small bars, with percentages where they fit, and tokens per pass."""
    rates: Sequence[float] = figures["acceptance_per_position"]
    mean = figures["mean_acceptance_length"]
    right = Text.assemble(("–" if mean is None else f"{mean:.1f}", "bold"), " tokens per pass")
    label = "by position  " if width >= 50 else ""
    room = width - len(label) - right.cell_len - 2
    for spelled, gap in _POSITION_SPELLINGS:
        drawn = Text(gap).join(_position(spelled, place, rate) for place, rate in enumerate(rates, 1))
        if drawn.cell_len <= room:
            break
    return spread(Text.assemble((label, "dim"), drawn), right, width)


def _position(spelled: str, place: int, rate: float) -> Text:
    block = _BLOCKS[min(7, int(8 * rate))]
    text = Text(spelled.format(n=place, bar=block, rate=round(100 * rate)))
    text.highlight_regex(f"[{_BLOCKS}]", "green")
    if "{n}" in spelled:
        text.stylize("dim", 0, len(str(place)))
    return text


def lengths(ks: Sequence[int], reason: str, width: int) -> Text:
    """K of the newest rounds as small bars, newest last, · for plain decoding; and the reason for the newest."""
    label = "K by round   " if width >= 50 else ""
    shown_reason = Text(reason, "dim")
    shown_reason.truncate(max(width - len(label) - 12, 0), overflow="ellipsis")
    room = width - len(label) - shown_reason.cell_len - 2
    shown = ks[-room:] if room > 0 else ()
    drawn = Text("".join(_BLOCKS[min(k, len(_BLOCKS)) - 1] if k else "·" for k in shown), "green")
    drawn.highlight_regex("·", MUTED)
    return spread(Text.assemble((label, "dim"), drawn), shown_reason, width)


def pace(figures: Mapping[str, Any], width: int) -> Text:
    """The shares of the time, and the speed of the answer."""
    draft, verify = figures["draft_seconds"], figures["verify_seconds"]
    share = ratio(draft, draft + verify)
    speedup = figures["estimated_speedup"]
    right = Text.assemble((speed(figures["tokens_per_second"]), "bold"))
    if speedup is not None:
        right.append(SEPARATOR, "dim").append(f"{speedup:.2f}× plain", "green" if speedup >= 0.995 else "yellow")
    if not figures["draft_n"] or share is None:
        return spread(Text("one target pass per token", "dim") if right.cell_len < width - 26 else Text(), right, width)
    drafting, verifying = f"draft {percent(share)}", f"verify {percent(1 - share)}"
    label = "time spent   "
    cells = min(24, width - len(label) - len(drafting) - len(verifying) - right.cell_len - 4)
    if cells < 6:
        short = f"{drafting}{SEPARATOR}{verifying}"
        return spread(Text(short if len(short) + right.cell_len < width else ""), right, width)
    filled = min(max(round(share * cells), 1), cells - 1)
    shares = (("━" * filled, "magenta"), ("─" * (cells - filled), "blue"))
    return spread(Text.assemble((label, "dim"), drafting, " ", *shares, " ", verifying), right, width)
