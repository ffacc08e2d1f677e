"""A round as one row: what became of every drafted token, the target's own, how many were accepted, the time it took.

Marks differ in shape; colour and strike-through repeat them. The panel, `--rounds`, `replay` and `race` draw this row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from specdec_cli.core.events import RoundDone, Start
from specdec_cli.core.format import elapsed
from specdec_cli.core.judged import TokenKind, tokens_of
from specdec_cli.terminal.panel.answer import ANSWER_STYLES, MARKS, OWN, name_of
from specdec_cli.terminal.panel.box import shortened
from specdec_cli.terminal.terminal import USUAL_COLUMNS, visible

PLAIN: Final = "–"
STYLES: Final = {mark: ANSWER_STYLES[kind].replace(" strike", "") for kind, mark in MARKS.items()} | {PLAIN: OWN}
"""By mark; the last one is of a round without a draft."""

NUMBER, OUTCOME, TIME, WIDEST_OWN, WIDEST_DRAFTED = 5, 9, 8, 24, 12
"""Cells of a row's columns, of the target's own token at most, and for each drafted one at most."""


class _Token(NamedTuple):
    mark: str
    text: str

    def cut(self, longest: int | None) -> str:
        """The text in at most `longest` cells; a count stays whole."""
        return self.text if longest is None or " " in self.text else shortened(self.text, longest)

    def draw(self, longest: int | None) -> Text:
        """Mark and text; the mark shows the kind, colour and strike-through repeat it."""
        drawn = Text(self.mark + self.cut(longest), STYLES[self.mark[0]])
        if self.mark == "✗":
            drawn.stylize("strike", 1)
        drawn.highlight_regex("[␣↵⇥]", "not bold dim")
        return drawn


class RoundRows:
    """The rows of a reply's rounds, one after another.

    A drafter is named where it changes, the first one where it is not the one that `start` names.
    """

    def __init__(self, start: Start, width: int = USUAL_COLUMNS, cut: bool = True) -> None:
        """A row has exactly `width` cells; unless it is `cut`, at least as many, and every token whole."""
        self._drafter, self._width, self._cut = start.drafter, width, cut
        self._widest = width if isinstance(start.k, str) else WIDEST_DRAFTED * max(start.k, 2)

    def row(self, done: RoundDone) -> Text:
        """The row of the next round."""
        judged, number = done.round, f"{done.round.index + 1:>3} ".ljust(NUMBER)
        every = [_Token(MARKS.get(kind, PLAIN), visible(piece)) for kind, piece, _ in tokens_of(done)]
        tokens, own = every[: len(judged.draft)], next(iter(every[len(judged.draft) :]), None)
        room = self._width - len(number) - OUTCOME - TIME - 1
        own_room = min(room * 3 // 10, WIDEST_OWN)
        outcome_room = max(room - own_room - self._widest, 0) + OUTCOME
        room = min(room - own_room, self._widest)

        named = ""
        if tokens and judged.drafter != self._drafter:
            self._drafter, named = judged.drafter, f"{shortened(visible(judged.drafter), 12)}: "
        guessed = _fitted(tokens, room - cell_len(named)) if self._cut else _joined(tokens, None)
        drafted = Text.assemble((named, "italic"), guessed)
        written = Text("ends here", "dim")  # an accepted stop token
        if own is not None:
            written = _Token(f"{own.mark} ", own.text).draw(own_room - 2 if self._cut else None)
        found = Text(f"{judged.accepted} of {len(tokens)}") if tokens else Text("plain", "dim")
        spent = Text(f"{elapsed(judged.draft_seconds + judged.verify_seconds):>{TIME}}", "dim")
        column = max(own_room - max(drafted.cell_len - room, 0), written.cell_len)
        return Text.assemble(
            (number, "dim"),
            *(drafted, " " * max(room - drafted.cell_len + 1, 1)),
            *(written, " " * (column - written.cell_len + outcome_room - found.cell_len)),
            *(found, spent),
        )


def round_rows(rounds: Iterable[RoundDone], start: Start, width: int) -> list[Text]:
    """The rows of these rounds, each of exactly `width` cells."""
    rows = RoundRows(start, width)
    return [rows.row(done) for done in rounds]


def legends(drafts: bool = True) -> list[Text]:
    """What the marks mean, from the longest to the shortest spelling; plain decoding has one mark."""
    words = [f"{mark} {name_of(kind)}" for kind, mark in MARKS.items()] if drafts else [f"{PLAIN} plain"]
    shorter = [word for word in words if word[0] != MARKS[TokenKind.DISCARDED]]
    spelled = [(words, "   "), (words, "  "), (shorter, "  ")]
    return [Text(gap).join(Text(mark, STYLES[mark[0]]) for mark in kept) for kept, gap in spelled]


def _joined(tokens: Sequence[_Token], longest: int | None) -> Text:
    return Text(" ").join(token.draw(longest) for token in tokens)


def _fitted(tokens: list[_Token], room: int) -> Text:
    """The drafted tokens: all of them, the long ones shortened; else the last discarded ones only counted; else the
    first accepted ones, too. What is counted holds a space, and no token does."""
    accepted = sum(token.mark == "✓" for token in tokens)
    lost = sum(token.mark == "·" for token in tokens)
    fewer = [[*tokens[: len(tokens) - gone], _Token("·", f"{gone} more")] for gone in range(2, lost + 1)]
    lean = [tokens, *fewer][-1]
    least = [[_Token("✓", f"{gone} more"), *lean[gone:]] for gone in range(2, accepted + 1)]
    plans = [*((tokens, most) for most in (24, 14, 9, 8, 7, 6)), *((each, most) for most in (8, 6) for each in fewer)]
    for kept, longest in [*plans, (lean, 5), (lean, 4), *((each, 6) for each in least)]:
        if sum(2 + cell_len(token.cut(longest)) for token in kept) - 1 <= room:
            break
    row = _joined(kept, longest)
    row.truncate(max(room, 0), overflow="ellipsis")
    return row
