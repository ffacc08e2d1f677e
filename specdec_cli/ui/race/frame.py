"""Draws a race (pure). No row is too wide and no frame too tall; both lanes are drawn at one compute time.

Two tracks over the whole width, then the lanes' texts: side by side from `SIDE_BY_SIDE` columns on, else one below the
other. When one lane is done, its time stays, and the other's track shows how far it was then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from rich.text import Text

from specdec_cli import gain
from specdec_cli.audit.divergence import Divergence, Token
from specdec_cli.events import Finish, RoundDone, Start
from specdec_cli.fates import Fate, FateStream
from specdec_cli.format import count, speed
from specdec_cli.race.events import (
    DRAFTED,
    LANES,
    PLAIN,
    LaneName,
    LaneState,
    LaneStep,
    Measured,
    RaceEvent,
    RaceFinish,
    RaceState,
)
from specdec_cli.ui.panel.answer import GUESSED, OWN, folds
from specdec_cli.ui.panel.rounds import boxed, edge, shortened, spread
from specdec_cli.ui.summary import SEPARATOR, verdict_style
from specdec_cli.ui.terminal import MUTED, TerminalFilter, safe, visible

NAMES = {PLAIN: "plain", DRAFTED: "drafted"}
TITLES = {PLAIN: "plain decoding", DRAFTED: "drafted"}
# Nearer than this to 1, nobody is ahead.
NECK = 0.02


def ratio(found: Measured) -> str:
    """ "1.62× faster (1.55–1.70)" and its kin; without an interval nothing is called faster."""
    if found.low is None or found.high is None:
        return gain.TOO_FEW
    return gain.ratio_words(found.speedup, found.low, found.high)


def ratio_style(finish: RaceFinish | None) -> str:
    """The colour of the ratio; bold while there is none."""
    found = finish.measured if finish else None
    if found is None or found.low is None or found.high is None:
        return "bold"
    return verdict_style(gain.verdict(found.low, found.high))


def headline(state: RaceState) -> str:
    """Who is ahead, and by how much; at the end the ratio."""
    finish = state.finish
    if finish is not None:
        if finish.reason == "interrupted":
            return "interrupted"
        return ratio(finish.measured) if finish.measured else "nothing was written"
    if state.drafted.prefill_seconds is None:
        return "reading the prompt"
    return lead(state.lead)


def lead(found: float | None) -> str:
    """ "drafted 1.62× ahead"."""
    if found is None:
        return "off they go"
    if abs(found - 1) < NECK:
        return "neck and neck"
    return f"drafted {found:.2f}× ahead" if found > 1 else f"plain {1 / found:.2f}× ahead"


def same_text(finish: RaceFinish) -> str:
    """ "same text ✓", or where the texts part."""
    if finish.divergence is not None:
        return parting(finish.divergence)
    if finish.reason == "interrupted":
        return "same text as far as both went ✓"
    return "same text ✓"


def parting(found: Divergence) -> str:
    """The first difference with its gap, and whether rounding explains it."""
    plain, drafted = _named(found.plain), _named(found.specdec)
    where = f"token {found.position + 1} is {drafted}, in plain decoding {plain}"
    if not math.isfinite(found.gap):
        return f"the texts differ: {where}, and no rounding does that"
    sign = "≤" if found.near_tie else ">"
    judged = "a near-tie" if found.near_tie else "more than a near-tie"
    return f"{judged}: {where}, gap {found.gap:.2g} {sign} {found.limit:.2g}"


def passes(finish: RaceFinish) -> str:
    """ "41 target passes for 100 tokens, against 100"."""
    (plain, drafted), (_, tokens) = finish.passes, finish.tokens
    return f"{count(drafted, 'target pass')} for {count(tokens, 'token')}, against {plain}"


def verdict(finish: RaceFinish) -> list[str]:
    """The last words: same text, the ratio with both times, passes."""
    found = finish.measured
    if found is None:
        return ["nothing was written"]
    times = f"{found.drafted_seconds:.2f} s instead of {found.plain_seconds:.2f} s"
    some = "" if found.tokens == max(finish.tokens) else f" for the first {count(found.tokens, 'token')}"
    return [same_text(finish), f"{ratio(found)}: {times}{some}", passes(finish)]


def settings(state: RaceState) -> list[str]:
    """The pair, who drafts, K and rule."""
    start = state.drafted.start
    name = safe(state.start.pair if state.start else "").replace("\n", " ")
    if start is None:
        return [name]
    sampled = [start.rule, f"temperature {start.temperature:g}", f"seed {start.seed}"] if start.temperature else []
    drafter = [] if start.drafter == "model" else [start.drafter]
    return [name, *drafter, f"K {start.k}", *sampled]


def figures(lane: LaneState, seconds: float) -> tuple[int, int, float]:
    """(tokens, passes, the lane's seconds) at that compute time."""
    done = lane.rounds_by(seconds)
    ended = lane.done and done == len(lane.rounds)
    return lane.tokens_by(seconds), done, lane.last_seconds if ended else seconds


def _named(token: Token | None) -> str:
    return "nothing" if token is None else f"{visible(token.text)} ({token.id})"


_TAB: Final = "    "
SIDE_BY_SIDE: Final = 80
WIDEST: Final = 120
NARROWEST: Final = 40
TALLEST: Final = 12
"""Rows of text of a lane, at most."""
LONGEST: Final = 10_000
"""Rows of a lane's text in a picture."""
COLOURS: Final[Mapping[LaneName, str]] = {PLAIN: "blue", DRAFTED: "green"}


class LaneText:
    """A lane's text, append-only, with the length that it had after each round.

    It is filtered as one stream, so that no control sequence survives being split over tokens.
    """

    def __init__(self, coloured: bool, prompt: str = "") -> None:
        """Uncoloured where nothing is drafted; `prompt` is what the text continues."""
        self._coloured = coloured
        self._filter, self._fates = TerminalFilter(), FateStream()
        self._spans: list[tuple[str, str]] = []
        self._lengths: list[int] = []
        self._append(safe(prompt), "dim")

    def feed(self, done: RoundDone) -> None:
        """One more round."""
        for fate, text in self._fates.round(done):
            style = (GUESSED if fate is Fate.ACCEPTED else OWN) if self._coloured else ""
            self._append(self._filter.feed(text), style)
        self._lengths.append(len(self._spans))

    def end(self, finish: Finish) -> None:
        """What was held back belongs to the last round."""
        self._append(self._filter.feed(finish.text_tail) + self._filter.finish(), OWN if self._coloured else "")
        if self._lengths:
            self._lengths[-1] = len(self._spans)

    def rows(self, rounds: int, bright: int, width: int, height: int) -> list[Text]:
        """The last `height` rows of `width` cells after so many rounds; what came after round `bright` is dim."""
        until = self._lengths[rounds - 1] if rounds else 0
        lit = self._lengths[bright - 1] if bright else 0
        shown = Text()
        for place in range(self._first(until, width * height), until):
            text, style = self._spans[place]
            shown.append(text, style if place < lit else "dim")
        rows: list[Text] = []
        place = 0
        for line in shown.plain.split("\n"):
            full, rest = folds(line, 0, len(line), width)
            rows += [shown[place + begin : place + end] for begin, end in [*full, (rest, len(line))]]
            place += len(line) + 1
        return rows[-height:]

    def _append(self, text: str, style: str) -> None:
        if text:
            self._spans.append((text.replace("\t", _TAB), style))

    def _first(self, until: int, cells: int) -> int:
        """A span from which the last `cells` characters and their whole line follow."""
        place, length = until, 0
        while place and (length <= cells or "\n" not in self._spans[place][0]):
            place -= 1
            length += len(self._spans[place][0])
        return place


class RaceView:
    """A race so far, and its lanes' texts: all that is drawn of it."""

    def __init__(self) -> None:
        self.state = RaceState()
        self.texts: dict[LaneName, LaneText] = {PLAIN: LaneText(False), DRAFTED: LaneText(True)}

    def apply(self, event: RaceEvent) -> None:
        """One more event."""
        self.state = self.state.apply(event)
        if not isinstance(event, LaneStep):
            return
        match event.event:
            case Start() as start:
                race = self.state.start
                self.texts[event.lane] = LaneText(start.k != 0, race.prompt if race and race.raw else "")
            case RoundDone() as done:
                self.texts[event.lane].feed(done)
            case Finish() as finish:
                self.texts[event.lane].end(finish)


def frame_rows(view: RaceView, width: int, height: int, tallest: int = TALLEST) -> list[Text]:
    """The race for a screen of `width` × `height` cells: at most `height` - 2 rows, always as many."""
    state = view.state
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
        return [top, *tracks, *_columns(view, width, min(room - 5, tallest))]
    if room >= 10:
        return [top, *tracks, *_stacked(view, width, min((room - 6) // 2, tallest // 2))]
    return [top, *tracks, _edge("╰╯", [], Text(), width)]


def whole_frame(view: RaceView, width: int) -> list[Text]:
    """The race with all of both texts, for a picture."""
    state, column = view.state, (width - 7) // 2
    rounds = {name: len(state.lane(name).rounds) for name in LANES}
    tallest = max(len(view.texts[name].rows(done, done, column, LONGEST)) for name, done in rounds.items())
    return frame_rows(view, width, tallest + 7, tallest)


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


def _columns(view: RaceView, width: int, height: int) -> list[Text]:
    """Both texts side by side, between edges that hold their names and figures."""
    left = (width - 7) // 2
    right = width - 7 - left
    shown = [_text(view, name, room, height) for name, room in zip(LANES, (left, right), strict=True)]
    side = ("│", MUTED)
    rows = [
        Text.assemble(side, " ", spread(one, Text(), left), " ", side, " ", spread(other, Text(), right), " ", side)
        for one, other in zip(*shown, strict=True)
    ]
    head = _double("├┬┤", [_joined(_name(name)) for name in LANES], left, right)
    return [head, *rows, _double("╰┴╯", [_figures(view.state, name) for name in LANES], left, right)]


def _stacked(view: RaceView, width: int, height: int) -> list[Text]:
    rows: list[Text] = []
    for name in LANES:
        rows.append(_edge("├┤", _name(name), _figures(view.state, name, "pass"), width))
        rows += [boxed(row, width) for row in _text(view, name, width - 4, height)]
    return [*rows, _edge("╰╯", [], Text(), width)]


def _text(view: RaceView, name: LaneName, width: int, height: int) -> list[Text]:
    """The lane's last rows; what it wrote after the other lane was done is dim."""
    state = view.state
    lane, photo = state.lane(name), state.photo_finish
    rounds = lane.rounds_by(state.shown_seconds)
    bright = rounds
    if photo and photo[0] == name and state.first:
        bright = min(rounds, lane.rounds_by(state.lane(state.first).last_seconds))
    rows = view.texts[name].rows(rounds, bright, width, height) if rounds else [_waiting(state, name)]
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
    spellings = [_joined(lefts[:kept]) for kept in range(len(lefts), -1, -1)]
    return edge(ends, spellings, [right, Text()], width)


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
