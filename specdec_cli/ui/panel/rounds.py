"""Draws a round as a row: every token with its fate. Law: a row keeps its rejected and its next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from specdec_cli.events import RoundDone
from specdec_cli.ui.fates import Fate, fates
from specdec_cli.ui.terminal import MUTED, visible

FATES: Final = {"✓": "green", "✗": "red", "·": MUTED, "➜": "yellow", "★": "cyan"}
"""Accepted, rejected, discarded, correction or plain token, bonus."""

_GLYPHS: Final = {
    Fate.ACCEPTED: "✓",
    Fate.REJECTED: "✗",
    Fate.DISCARDED: "·",
    Fate.CORRECTION: "➜",
    Fate.PLAIN: "➜",
    Fate.BONUS: "★",
}
_MARKS = "␣↵⇥"
_GENEROUS = ((28, 28), (14, 14), (9, 9))
_TIGHT = ((14, 14), (9, 9), (5, 9))
"""Cells for the text of (accepted and discarded tokens, the rejected and the next token)."""


@dataclass(frozen=True, slots=True)
class _Token:
    fate: str
    text: str

    def draw(self, longest: tuple[int, int], newest: bool) -> Text:
        """Glyph and text; the glyph shows the fate, colour and strike-through repeat it."""
        colour = FATES[self.fate]
        shown = shortened(self.text, longest[self.fate in "✗➜★"])
        drawn = Text.assemble((self.fate, "bold"), (shown, "strike" if self.fate == "✗" else ""))
        # Bold undoes dim in some terminals.
        drawn.stylize(f"not bold {MUTED}" if colour == MUTED else f"bold {colour}" if newest else colour)
        for place, char in enumerate(shown, 1):
            if char in _MARKS:
                drawn.stylize("not bold dim", place, place + 1)
        return drawn


def round_row(done: RoundDone, width: int, index_width: int, newest: bool, drafter: str = "") -> Text:
    """One row of `width` cells: index, tokens, accepted of drafted, draft + verify milliseconds."""
    index = f"{done.round.index:>{index_width}}  "
    outcome = _outcome(done, width, drafter)
    tokens = _fitted(_tokens(done), width - len(index) - cell_len(outcome) - 2, newest)
    left = Text.assemble((index, "bold" if newest else "dim"), tokens)
    return spread(left, Text.assemble((outcome, "" if newest else "dim")), width)


def spread(left: Text, right: Text, width: int) -> Text:
    """`left` and `right` at the ends of a row of exactly `width` cells; `left` is cut if both do not fit."""
    room = width - right.cell_len - 1 if right else width
    if left.cell_len > room:
        left = left.copy()
        left.truncate(max(room, 0), overflow="ellipsis")
    return Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right)


def shortened(text: str, longest: int) -> str:
    """`text` in at most `longest` cells, its end replaced by … where it is longer."""
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip(" ") + "…"


def _tokens(done: RoundDone) -> list[_Token]:
    return [_Token(_GLYPHS[fate], visible(piece)) for fate, piece in fates(done)]


def _fitted(tokens: list[_Token], room: int, newest: bool) -> Text:
    """All tokens, shortened if necessary; then without discarded texts; then without the first accepted tokens."""
    lean = [token for token in tokens if token.fate != "·"]
    if len(lean) < len(tokens):
        lean.insert(-1 if tokens[-1].fate != "·" else len(lean), _Token("·", "…"))
    attempts = [(tokens, longest) for longest in _GENEROUS] + [(lean, longest) for longest in _TIGHT]
    accepted = sum(token.fate == "✓" for token in lean)
    fewer = [[_Token("✓", "…"), *lean[dropped:]] for dropped in range(1, accepted + 1)]
    attempts += [(kept, (5, 9)) for kept in fewer] + [(fewer[-1] if fewer else lean, (5, 5))]
    for chosen, longest in attempts:
        row = Text(" ").join(token.draw(longest, newest) for token in chosen)
        if row.cell_len <= room:
            return row
    row.truncate(max(room, 0), overflow="ellipsis")
    return row


def _outcome(done: RoundDone, width: int, drafter: str) -> str:
    judged = done.round
    found = f"{judged.accepted} of {len(judged.draft)}" if judged.draft else "plain"
    if width < 50:
        return found
    draft, verify = milliseconds(judged.draft_seconds), milliseconds(judged.verify_seconds)
    if not judged.draft:
        return f"{found} · {verify:>3} ms"
    source = f"{drafter} · " if drafter and width >= 70 else ""
    return f"{source}{found} · {draft:>3} + {verify:>3} ms"


def milliseconds(seconds: float) -> str:
    """0.0021 -> "2.1", 0.021 -> "21"."""
    value = 1000 * seconds
    return f"{value:.{1 if value < 9.95 else 0}f}"
