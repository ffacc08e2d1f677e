"""Draws rounds: the tokens of one, and many as a strip. A round keeps its rejected and its target's own token.

Also the rows and the box of every panel; each has exactly the width that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from specdec_cli.events import RoundDone
from specdec_cli.fates import Fate, fates
from specdec_cli.format import count
from specdec_cli.ui.panel.answer import GUESSED, OWN
from specdec_cli.ui.terminal import MUTED, visible

LABEL: Final = 9
"""Cells of the words at the beginning of a row."""

MARKS: Final = {Fate.ACCEPTED: "✓", Fate.REJECTED: "✗", Fate.DISCARDED: "·"}
STYLES: Final = {"✓": GUESSED, "✗": "red", "·": MUTED, "↳": OWN, "–": MUTED}
"""By mark: accepted, rejected, discarded, the target's own, a round without a draft."""

_BLANKS = re.compile("(␣{2,}|⇥{2,})")
_SIGNS = re.compile("[␣↵⇥]")
_GAP = "  "
_MOST_TICKS = 5


class _Token(NamedTuple):
    mark: str
    text: str

    def draw(self, longest: int) -> Text:
        """Mark and text; the mark shows the fate, colour and strike-through repeat it."""
        drawn = Text(f"{self.mark} {shortened(self.text, longest)}", STYLES[self.mark])
        if self.mark == "✗":
            drawn.stylize("strike", 2)
        drawn.highlight_regex(_SIGNS, "not bold dim")
        return drawn


def round_rows(done: RoundDone, width: int, drafter: str = "") -> tuple[Text, Text]:
    """The drafted tokens, and below the rejected one, or behind the last, the target's own.

    `drafter` names who drafted this round, where several may.
    """
    drafted, own = _tokens(done)
    judged, wide = done.round, width >= 62
    found = f"{judged.accepted} of {len(judged.draft)}{' accepted' * wide}" if judged.draft else ""
    outcome = Text(f"{drafter}: {found}" if drafter and found else found)
    gave = Text(f"{'1 pass ' * wide}→ {count(len(judged.emitted), 'token')}")
    if drafted:
        row, column = _fitted(drafted, width - LABEL - outcome.cell_len - 2)
    else:
        row, column = Text("nothing this time" if judged.index else "nothing before the first token", "dim"), 0
    room = width - LABEL - gave.cell_len - 2
    shown = own.draw(max(room - 2, 1)) if own else Text("–", "dim")
    below = Text(" " * min(column, max(room - shown.cell_len, 0))).append_text(shown)
    return labelled("drafted", row, outcome, width), labelled("target", below, gave, width)


def own_token(done: RoundDone, width: int) -> Text:
    """The target's own token of a round."""
    own = _tokens(done)[1]
    return own.draw(max(width - LABEL - 24, 1)) if own else Text("–", "dim")


def strip(rounds: Sequence[RoundDone], shown: RoundDone | None, right: Text, width: int) -> Text:
    """The tokens that the newest rounds gave, newest last; a triangle at the round that is `shown`.

    Rounds without a draft that follow one another are one entry.
    """
    room = width - LABEL - right.cell_len - 2
    entries: list[Text] = []
    used = 0
    runs = [list(run) for _, run in groupby(rounds, lambda done: bool(done.round.draft) and done.round.index)]
    for run in reversed(runs):
        here = shown is not None and any(done.round.index == shown.round.index for done in run)
        entry = Text.assemble(("▸" if here else " ", "bold"), _passed(run[-1]))
        if len(run) > 1:
            entry.append(f" ×{len(run)}", "dim")
        if here:
            entry.stylize("bold")
        used += entry.cell_len + len(_GAP) * bool(entries)
        if used > room:
            break
        entries.insert(0, entry)
    row = Text(_GAP).join(entries)
    if len(entries) < len(runs):  # it moves: its newest end stays where it is
        row = Text(" " * max(room - row.cell_len, 0)).append_text(row)
    elif row.plain.startswith(" "):
        row = row[1:]
    return labelled("rounds", row, right, width)


def labelled(label: str, left: Text, right: Text, width: int) -> Text:
    """A row that begins with a dim word."""
    return spread(Text.assemble((f"{label:<{LABEL}}", "dim"), left), right, width)


def spread(left: Text, right: Text, width: int) -> Text:
    """`left` and `right` at the ends of a row; `left` is cut if both do not fit."""
    room = width - right.cell_len - 1 if right else width
    if left.cell_len > room:
        left = left.copy()
        left.truncate(max(room, 0), overflow="ellipsis")
    return Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right)


def boxed(row: Text, width: int) -> Text:
    """A row between the sides of the box."""
    return Text.assemble(("│ ", MUTED), spread(row, Text(), width - 4), (" │", MUTED))


def edge(ends: str, lefts: Sequence[Text], rights: Sequence[Text], width: int) -> Text:
    """A horizontal edge with words in it; the left ones are shortened first, then the right ones left out."""
    room = width - 9  # ends, dashes and spaces around both
    pairs = [(left, right) for right in rights for left in lefts]
    left, right = next((pair for pair in pairs if pair[0].cell_len + pair[1].cell_len <= room), (lefts[-1], Text()))
    left = left.copy()
    left.truncate(room, overflow="ellipsis")
    words = [Text.assemble(" ", end, " ") if end else Text() for end in (left, right)]
    dashes = "─" * (width - 4 - words[0].cell_len - words[1].cell_len)
    return Text.assemble((f"{ends[0]}─", MUTED), words[0], (dashes, MUTED), words[1], (f"─{ends[1]}", MUTED))


def shortened(text: str, longest: int) -> str:
    """`text` in at most `longest` cells, its end replaced by … where it is longer."""
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip(" ") + "…"


def _tokens(done: RoundDone) -> tuple[list[_Token], _Token | None]:
    """The drafted tokens, and the target's own: None where an accepted stop token ended the round.

    The space with which most words begin is left out, unless it is all that tells the target's token from the
    rejected one.
    """
    drafted: list[_Token] = []
    own = None
    for fate, piece, _ in fates(done):
        if fate in MARKS:
            drafted.append(_Token(MARKS[fate], _bare(piece)))
        else:
            own = _Token("↳", _bare(piece))
    rejected = done.round.accepted
    if own and rejected < len(drafted) and drafted[rejected].text == own.text:
        drafted[rejected] = _Token("✗", _signs(done.pieces[rejected]))
        own = _Token("↳", _signs(done.next_piece))
    return drafted, own


def _bare(piece: str) -> str:
    return _signs(piece[1:] if piece[:1] == " " and piece[1:].strip() and piece[1] != " " else piece)


def _signs(piece: str) -> str:
    """With every invisible character drawn, and a run of blanks as one sign and its length."""
    return _BLANKS.sub(lambda run: f"{run[0][0]}{len(run[0])}", visible(piece))


def _fitted(tokens: list[_Token], room: int) -> tuple[Text, int]:
    """The drafted tokens, and the column of the rejected one, or that behind the last.

    All tokens, shortened if necessary; then without the discarded ones; then without the first accepted ones.
    """
    accepted = sum(token.mark == "✓" for token in tokens)
    lost = sum(token.mark == "·" for token in tokens)
    lean = [*tokens[: len(tokens) - lost], _Token("·", f"{lost} more")] if lost > 1 else tokens
    fewer = [([_Token("✓", f"{gone} more"), *lean[gone:]], 6) for gone in range(2, accepted + 1)]
    for kept, longest in [*((tokens, 24), (tokens, 14), (tokens, 9)), (lean, 14), (lean, 9), (lean, 6), *fewer]:
        row = Text(_GAP).join(token.draw(longest) for token in kept)
        if row.cell_len <= room:
            break
    before = Text(_GAP).join(token.draw(longest) for token in kept if token.mark == "✓")
    row.truncate(max(room, 0), overflow="ellipsis")
    return row, before.cell_len + len(_GAP) if before else 0


def _passed(done: RoundDone) -> Text:
    """✓✓✗ 3: what became of a draft, and how many tokens the pass gave."""
    judged = done.round
    ticks = "✓" * min(judged.accepted, _MOST_TICKS) + "…" * (judged.accepted > _MOST_TICKS)
    marks = ticks + "✗" * (judged.rejected is not None) if judged.draft else "–"
    drawn = Text(f"{marks} {len(judged.emitted)}")
    for mark, style in STYLES.items():
        drawn.highlight_regex(mark, style)
    return drawn
