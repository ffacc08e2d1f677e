"""Draws a race (pure). Law: no row is too wide and no frame too tall; both lanes are drawn at one compute time.

Two tracks over the whole width, then the lanes' texts: side by side from `SIDE_BY_SIDE` columns on, else one below the
other. When one lane is done, its time stays, and the other's track shows how far it was then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.text import Text

from specdec_cli.format import count, speed
from specdec_cli.race.events import DRAFTED, LANES, PLAIN, LaneName
from specdec_cli.race.state import RaceState
from specdec_cli.ui.panel.box import boxed
from specdec_cli.ui.panel.rounds import shortened, spread
from specdec_cli.ui.race.column import GUESSED, OWN, LaneText
from specdec_cli.ui.race.sentences import NAMES, TITLES, figures, headline, ratio_style, settings
from specdec_cli.ui.summary import SEPARATOR
from specdec_cli.ui.terminal import MUTED

SIDE_BY_SIDE: Final = 80
WIDEST: Final = 120
NARROWEST: Final = 40
TALLEST: Final = 12
"""Rows of text of a lane, at most."""
COLOURS: Final[Mapping[LaneName, str]] = {PLAIN: "blue", DRAFTED: "green"}
Texts = Mapping[LaneName, LaneText]


def frame_rows(state: RaceState, texts: Texts, width: int, height: int) -> list[Text]:
    """The race for a screen of `width` × `height` cells: at most `height` - 2 rows, always as many."""
    if height < 3:
        return []
    if width < NARROWEST or height < 7:
        return [_line(state, lane, width) for lane in LANES][: height - 2]
    width = min(width, WIDEST)
    tracks = [boxed(row, width) for row in _tracks(state, width - 4)]
    top = _edge(
        "╭╮",
        [Text("race", "bold"), *map(Text, settings(state))],
        Text(headline(state), ratio_style(state.finish)),
        width,
    )
    room = height - 2
    if width >= SIDE_BY_SIDE and room >= 7:
        return [top, *tracks, *_columns(state, texts, width, min(room - 5, TALLEST))]
    if room >= 10:
        return [top, *tracks, *_stacked(state, texts, width, min((room - 6) // 2, TALLEST // 2))]
    return [top, *tracks, _edge("╰╯", [], Text(), width)]


def _tracks(state: RaceState, width: int) -> list[Text]:
    """A bar of tokens for each lane, its tokens and its seconds."""
    shown, photo = state.shown_seconds, state.photo_finish
    rows = []
    for name in LANES:
        tokens, _, seconds = figures(state.lane(name), shown)
        behind = photo[1] if photo and photo[0] == name else None
        flag = "✓" if state.first == name else " "
        unit = " tokens" if width >= 60 else ""
        right = Text.assemble(f"{flag} ", (f"{tokens:>4}", "bold"), unit, (f"{seconds:>7.2f} s", "bold"))
        left = Text.assemble((f"{NAMES[name]:<9}", f"bold {COLOURS[name]}"))
        left.append_text(_bar(tokens, behind, state.expected_tokens, width - 10 - right.cell_len, COLOURS[name]))
        rows.append(spread(left, right, width))
    return rows


def _bar(tokens: int, behind: int | None, length: int, width: int, colour: str) -> Text:
    """`tokens` of `length` as ━; those after the first `behind` were written when the other lane was done: ╍."""
    reached = min(round(2 * width * tokens / length), 2 * width)
    early = reached if behind is None else min(round(2 * width * behind / length), reached)
    drawn = Text()
    for cell in range(width):
        filled, bright = reached - 2 * cell, early - 2 * cell
        if bright > 1:
            drawn.append("━", colour)
        elif behind is not None and bright in (0, 1):
            drawn.append("┃", "bold")
        elif filled > 0:
            drawn.append("╍" if behind is not None else "╸", f"{colour} dim" if behind is not None else colour)
        else:
            drawn.append("─", MUTED)
    return drawn


def _columns(state: RaceState, texts: Texts, width: int, height: int) -> list[Text]:
    """Both texts side by side, between edges that hold their names and figures."""
    left = (width - 7) // 2
    right = width - 7 - left
    shown = [_text(state, texts, name, room, height) for name, room in zip(LANES, (left, right), strict=True)]
    side = ("│", MUTED)
    rows = [
        Text.assemble(side, " ", spread(one, Text(), left), " ", side, " ", spread(other, Text(), right), " ", side)
        for one, other in zip(*shown, strict=True)
    ]
    head = _double("├┬┤", [_joined(_name(name)) for name in LANES], left, right)
    return [head, *rows, _double("╰┴╯", [_figures(state, name) for name in LANES], left, right)]


def _stacked(state: RaceState, texts: Texts, width: int, height: int) -> list[Text]:
    rows: list[Text] = []
    for name in LANES:
        rows.append(_edge("├┤", _name(name), _figures(state, name, "pass"), width))
        rows += [boxed(row, width) for row in _text(state, texts, name, width - 4, height)]
    return [*rows, _edge("╰╯", [], Text(), width)]


def _text(state: RaceState, texts: Texts, name: LaneName, width: int, height: int) -> list[Text]:
    """The lane's last rows; what it wrote after the other lane was done is dim."""
    lane, photo = state.lane(name), state.photo_finish
    rounds = lane.rounds_by(state.shown_seconds)
    bright = rounds
    if photo and photo[0] == name and state.first:
        bright = min(rounds, lane.rounds_by(state.lane(state.first).last_seconds))
    rows = texts[name].rows(rounds, bright, width, height) if rounds else [_waiting(state, name)]
    return rows + [Text()] * (height - len(rows))


def _waiting(state: RaceState, name: LaneName) -> Text:
    lane = state.lane(name)
    if lane.start is None:
        return Text("warming up…", "dim")
    if lane.prefill_seconds is None:
        return Text(f"reading {count(lane.start.prompt_tokens, 'token')}…", "dim")
    return Text(f"read {count(lane.start.prompt_tokens, 'token')} in {lane.prefill_seconds:.2f} s", "dim")


def _name(name: LaneName) -> list[Text]:
    """The lane's title, and what its styles say."""
    legend = [Text("guessed", GUESSED), Text("target's own", OWN)] if name == DRAFTED else []
    return [Text(TITLES[name], "bold"), *legend]


def _figures(state: RaceState, name: LaneName, noun: str = "target pass") -> Text:
    tokens, passes, seconds = figures(state.lane(name), state.shown_seconds)
    if not tokens or not seconds:
        return Text()
    return Text(f"{speed(tokens / seconds)}{SEPARATOR}{count(passes, noun)}")


def _edge(ends: str, lefts: list[Text], right: Text, width: int) -> Text:
    """A horizontal edge; of the words at its left the last ones are dropped where both do not fit."""
    room = width - 9
    for kept in range(len(lefts), 0, -1):
        left = _joined(lefts[:kept])
        if left.cell_len + right.cell_len <= room:
            break
    else:
        left = Text()
    words = [_spaced(left), _spaced(_cut(right, room))]
    dashes = "─" * (width - 4 - words[0].cell_len - words[1].cell_len)
    return Text.assemble((ends[0] + "─", MUTED), words[0], (dashes, MUTED), words[1], ("─" + ends[1], MUTED))


def _double(ends: str, words: list[Text], left: int, right: int) -> Text:
    """An edge over two columns, with words in each."""
    parts: list[Text | tuple[str, str]] = [(ends[0], MUTED)]
    for shown, room, end in zip(words, (left, right), ends[1:], strict=True):
        inside = _spaced(_cut(shown, room - 2))
        parts += [("─", MUTED), inside, ("─" * (room + 1 - inside.cell_len), MUTED), (end, MUTED)]
    return Text.assemble(*parts)


def _joined(words: list[Text]) -> Text:
    """The words with their own styles, a separator between them."""
    joined = words[0].copy() if words else Text()
    for word in words[1:]:
        joined = Text.assemble(joined, (SEPARATOR, "dim"), word)
    return joined


def _cut(words: Text, room: int) -> Text:
    words = words.copy()
    words.truncate(max(room, 0), overflow="ellipsis")
    return words


def _spaced(words: Text) -> Text:
    return Text.assemble(" ", words, " ") if words else Text()


def _line(state: RaceState, name: LaneName, width: int) -> Text:
    """A lane in one line, for a screen that holds no more."""
    tokens, _, seconds = figures(state.lane(name), state.shown_seconds)
    return Text(shortened(f"{NAMES[name]:<8}{tokens:>4} tokens {seconds:.2f} s", width))
