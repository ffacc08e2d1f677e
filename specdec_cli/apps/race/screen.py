"""How a race looks: a live region, lines, JSON, a picture. The verdict is on stdout, the rest on stderr.

Two tracks over the whole width, then the lanes' texts: side by side from `SIDE_BY_SIDE` columns on, else one below the
other. Both lanes are drawn at one compute time. No row is too wide, no frame too tall, and its height never changes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import Final, TextIO

from rich.text import Text

from specdec_cli.apps.race.events import (
    DRAFTED,
    LANES,
    PLAIN,
    LaneName,
    LaneState,
    LaneStep,
    RaceEvent,
    RaceFinish,
    RaceState,
    race_dict,
)
from specdec_cli.core import gain
from specdec_cli.core.events import Finish, Prefill, RoundDone, Start
from specdec_cli.core.format import SEPARATOR, count, percent, speed
from specdec_cli.core.progress import Step
from specdec_cli.measure.divergence import Divergence
from specdec_cli.terminal.export import picture
from specdec_cli.terminal.panel.answer import GUESSED, OWN, AnswerText
from specdec_cli.terminal.panel.box import boxed, edge, spread
from specdec_cli.terminal.panel.frame import who_drafts
from specdec_cli.terminal.panel.region import LiveRegion
from specdec_cli.terminal.panel.rounds import legends, round_rows
from specdec_cli.terminal.panel.status import READING, TICK_SECONDS, StatusLine, reading_step, status_row, ticking
from specdec_cli.terminal.summary import flow, print_lines, verdict_style
from specdec_cli.terminal.terminal import MUTED, can_draw, make_console, safe, terminal_size, visible
from specdec_cli.terminal.writer import AnswerWriter

# Nearer than this to 1, nobody is ahead.
NECK = 0.02
SIDE_BY_SIDE, WIDEST, NARROWEST = 80, 120, 40
# Rows of a lane's text at most, and in a picture.
TALLEST, LONGEST = 12, 10_000
# Rounds of the drafted lane, and the smallest frame that holds them.
ROUNDS, WIDE_ENOUGH, HIGH_ENOUGH = 3, 56, 15
PICTURE_COLUMNS: Final = 100
WARMING: Final = "warming up"
IN_TURNS: Final = "one machine, in turns: the lane that had used less compute time went next"
OnEvent = Callable[[RaceEvent], None]
COLOURS: Final[Mapping[LaneName, str]] = {PLAIN: "blue", DRAFTED: "green"}


@contextmanager
def race_display(out: TextIO, err: TextIO, *, json: bool, quiet: bool, plain: bool) -> Iterator[OnEvent]:
    """What shows each event of one race, for these options and streams; the terminal is restored on exit."""
    if json:
        yield partial(_write_json, out)
    elif can_draw(err) and not quiet and not plain:
        with live_race(out, err) as show:
            yield show
    else:
        with ExitStack() as waiting:
            line = waiting.enter_context(StatusLine(err, "racing", shown=not quiet, plain=plain))
            line.say(Step(of=len(LANES)))
            state = RaceState()

            def show_lines(event: RaceEvent) -> None:
                if isinstance(event, RaceFinish):
                    waiting.close()
                _write_lines(out, plain, state, event)

            yield show_lines


def _write_json(out: TextIO, event: RaceEvent) -> None:
    out.write(json.dumps(race_dict(event), ensure_ascii=True) + "\n")
    out.flush()


def _write_lines(out: TextIO, plain: bool, state: RaceState, event: RaceEvent) -> None:
    """At the end the text, the settings, the figures of both lanes, and the verdict."""
    state.apply(event)
    if not isinstance(event, RaceFinish):
        return
    for name in LANES if event.divergence else (DRAFTED,):
        writer, ended = AnswerWriter(out), state.lanes[name].finish
        writer.write(ended.text if ended else "")
        writer.end()
    lines = [SEPARATOR.join(_settings(state))]
    for name, lane in state.lanes.items():
        pace = speed(lane.tokens / lane.seconds if lane.seconds else None)
        counted = f"{count(lane.tokens, 'token')} in {count(len(lane.rounds), 'target pass')}"
        prompt = f"prompt {lane.prefill_seconds or 0.0:.2f} s"
        lines.append(f"{name:<9}{counted}, {lane.seconds:.2f} s, {pace}; {prompt}")
    console = make_console(out, plain=plain)
    console.print()
    for line in (*lines, *verdict(event)):
        console.print(Text(line), soft_wrap=True)


@contextmanager
def live_race(out: TextIO, err: TextIO, clock: Callable[[], float] = time.monotonic) -> Iterator[OnEvent]:
    """What shows a race as it goes in a region of fixed height; its last frame stays, the verdict below it on `out`."""
    console, view, drawing = make_console(out, plain=False), RaceView(), RLock()
    region = LiveRegion(make_console(err, plain=False), err, lambda: terminal_size(err))

    def rows(below: int = 0) -> list[Text]:
        """The frame, such that so many rows `below` it scroll none of it away."""
        width, height = region.size()
        return frame_rows(view, width, height - below)

    def tick() -> None:
        """How long a lane has waited goes on between its events."""
        view.now = clock()
        if view.state.start:
            region.draw("", rows())

    def show(event: RaceEvent) -> None:
        if isinstance(event, RaceFinish):
            ticks.close()
        with drawing:
            now = clock()
            view.apply(event, now)
            if isinstance(event, RaceFinish):
                width = min(console.width, region.size()[0])
                told = verdict_lines(event, width)
                region.release("", rows(len(told)))
                print_lines(console, told, width)
            elif region.due(now):
                region.draw("", rows())

    with ExitStack() as ticks:
        ticks.enter_context(ticking(tick, drawing, TICK_SECONDS))
        try:
            yield show
        finally:
            ticks.close()
            if view.state.start and not view.state.finish:
                with suppress(OSError, ValueError):  # the terminal is gone
                    region.release("", rows())


def race_picture(events: Sequence[RaceEvent]) -> str:
    """A race that ended as an SVG picture of all of both texts."""
    view = RaceView()
    for event in events:
        view.apply(event)
    finish, start = view.state.finish, view.state.start
    assert finish is not None and start is not None
    column = (PICTURE_COLUMNS - 7) // 2
    tallest = max(len(view.text_rows(name, column, LONGEST)) for name in LANES)
    prompt = [] if start.raw else [Text(f"prompt: {safe(start.prompt)}", "dim")]
    told = [*verdict_lines(finish, PICTURE_COLUMNS), Text(safe(f"{start.machine}{SEPARATOR}{IN_TURNS}"), "dim")]
    rows = [*prompt, *frame_rows(view, PICTURE_COLUMNS, tallest + ROUNDS + 8, tallest), *told]
    return picture(f"specdec race: {headline(view.state)}", rows, PICTURE_COLUMNS)


# Words


def headline(state: RaceState) -> str:
    """Who is ahead, and by how much; at the end the ratio."""
    finish, found = state.finish, state.lead
    if finish is not None:
        return "interrupted" if finish.reason == "interrupted" else ratio(finish)
    if state.lanes[DRAFTED].prefill_seconds is None:
        return READING if state.lanes[PLAIN].start else WARMING
    if found is None:
        return "off they go"
    if abs(found - 1) < NECK:
        return "neck and neck"
    return f"drafted {found:.2f}× ahead" if found > 1 else f"plain {1 / found:.2f}× ahead"


def ratio(finish: RaceFinish) -> str:
    """ "1.62× faster (1.55–1.70)" and its kin; without an interval nothing is called faster."""
    found = finish.measured
    if found is None:
        return "nothing was written"
    if found.low is None or found.high is None:
        return gain.TOO_FEW
    return gain.ratio_words(found.speedup, found.low, found.high)


def ratio_style(finish: RaceFinish | None) -> str:
    """The colour of the ratio; bold while there is none."""
    found = finish.measured if finish else None
    if found is None or found.low is None or found.high is None:
        return "bold"
    return verdict_style(gain.verdict(found.low, found.high))


def verdict(finish: RaceFinish) -> list[str]:
    """The last words: same text or where they part, the ratio with both times, and passes for as many tokens."""
    found, (plain, drafted) = finish.measured, finish.passes
    if found is None:
        return ["nothing was written"]
    same = "same text as far as both went ✓" if finish.reason == "interrupted" else "same text ✓"
    times = f"{found.drafted_seconds:.2f} s instead of {found.plain_seconds:.2f} s"
    some = "" if found.tokens == max(finish.tokens) else f" for the first {count(found.tokens, 'token')}"
    passes = f"{count(drafted, 'target pass')} for {count(finish.tokens[1], 'token')}, against {plain}"
    parted = finish.divergence and parting(finish.divergence)
    return [parted or same, f"{ratio(finish)}: {times}{some}", *[passes] * (len({*finish.tokens}) == 1)]


def parting(found: Divergence) -> str:
    """The first difference with its gap, and whether rounding explains it."""
    plain, drafted = (
        "nothing" if token is None else f"{visible(token.text)} ({token.id})" for token in (found.plain, found.specdec)
    )
    where = f"token {found.position + 1} is {drafted}, in plain decoding {plain}"
    if not math.isfinite(found.gap):
        return f"the texts differ: {where}, and no rounding does that"
    judged, sign = ("a near-tie", "≤") if found.near_tie else ("more than a near-tie", ">")
    return f"{judged}: {where}, gap {found.gap:.2g} {sign} {found.limit:.2g}"


def verdict_lines(finish: RaceFinish, width: int) -> list[Text]:
    """The last words in lines of at most `width` cells."""
    styles = ("green" if finish.lossless else "bold red", ratio_style(finish), "dim")
    return flow(zip(verdict(finish), styles, strict=False), width)


def lesson(events: Iterable[RaceEvent], step: str) -> list[tuple[str, str]]:
    """What the demo pair's race shows: what was accepted, why that paid or did not, and the `step` to a real pair."""
    state = RaceState()
    for event in events:
        state.apply(event)
    drafted, finish = state.lanes[DRAFTED].finish, state.finish
    if drafted is None or finish is None or finish.measured is None:
        return []
    stats, low = drafted.stats, finish.measured.low
    paid = low is not None and low > 1
    share, tokens = percent(stats["draft_acceptance_rate"]), stats["emitted_tokens"]
    guessed = f"The draft guessed {count(stats['draft_n'], 'token')} in {count(stats['rounds'], 'round')}"
    passes = f"The target wrote {count(tokens, 'token')} in {count(stats['target_passes'], 'pass')}, not in {tokens}"
    return [
        ("What was accepted", f"{guessed}; the target accepted {stats['draft_n_accepted']} of them ({share})."),
        (
            "Why it paid" if paid else "Whether it paid",
            f"{passes}. A pass reads all of its weights, however many tokens it checks. "
            f"Measured on this machine: {ratio(finish)}.",
        ),
        ("This pair", "Two tiny models that only continue Python. The target was trained to lean towards its draft."),
        ("A real pair", step),
    ]


def _settings(state: RaceState) -> list[str]:
    """The pair, who drafts, K and rule."""
    start = state.lanes[DRAFTED].start
    name = safe(state.start.pair if state.start else "").replace("\n", " ")
    if start is None:
        return [name]
    sampled = [start.rule, f"temperature {start.temperature:g}", f"seed {start.seed}"] if start.temperature else []
    return [name, *who_drafts(start), f"K {start.k}", *sampled]


# The frame


class RaceView:
    """A race so far, and its lanes' texts. It is `now`; what is waited for began at `since`."""

    def __init__(self) -> None:
        self.state, self.now, self.since = RaceState(), 0.0, 0.0
        self._texts: dict[LaneName, AnswerText] = {}

    def apply(self, event: RaceEvent, now: float = 0.0) -> None:
        """One more event."""
        self.state.apply(event)
        self.now = now
        if not isinstance(event, LaneStep) or isinstance(event.event, Start | Prefill):
            self.since = now
        if not isinstance(event, LaneStep):
            return
        match event.event:
            case Start(k=k):
                race = self.state.start
                self._texts[event.lane] = AnswerText(k != 0, race.prompt if race and race.raw else "")
            case RoundDone() as done:
                self._texts[event.lane].add(done)
            case Finish(text_tail=tail):
                self._texts[event.lane].end(tail)

    def text_rows(self, name: LaneName, width: int, height: int) -> list[Text]:
        """The last `height` rows, of at most `width` cells, of what the lane has written by the shown time."""
        lane = self.state.lanes[name]
        if rounds := lane.by(self.state.shown_seconds)[1]:
            return self._texts[name].upto(rounds, width)[-height:]
        return [Text(_waiting(lane, self.state, self.now - self.since, width), "dim")]


def frame_rows(view: RaceView, width: int, height: int, tallest: int = TALLEST) -> list[Text]:
    """The race for a screen of `width` × `height` cells: at most `height` - 2 rows, always as many."""
    room = height - 2
    if width < NARROWEST or room < 5:
        rows = _tracks(view.state, max(width, NARROWEST))[: max(room, 0)]
        for row in rows:
            row.truncate(width)
        return rows
    width, state = min(width, WIDEST), view.state
    words = [Text("race", "bold"), *map(Text, _settings(state))]
    head = _edge("╭╮", words, Text(headline(state), ratio_style(state.finish)), width)
    rounds = _rounds(state, width) if width >= WIDE_ENOUGH and room >= HIGH_ENOUGH else []
    rows, room = [head, *(boxed(row, width) for row in _tracks(state, width - 4)), *rounds], room - len(rounds)
    if width >= SIDE_BY_SIDE and room >= 7:
        return rows + _columns(view, width, min(room - 5, tallest))
    if room >= 10:
        each = min((room - 6) // 2, tallest // 2)
        for name in LANES:
            rows.append(_edge("├┤", _titles(name), _figures(state, name, "pass"), width))
            rows += [boxed(row, width) for row in _filled(view.text_rows(name, width - 4, each), each)]
    return [*rows, _edge("╰╯", [], Text(), width)]


def _tracks(state: RaceState, width: int) -> list[Text]:
    """A bar of tokens for each lane, its tokens and its seconds; ✓ marks the one that was done first."""
    shown, first, rows = state.shown_seconds, state.first, []
    longest = max((lane.tokens for lane in state.lanes.values() if lane.whole), default=0)
    longest = longest or max((lane.start.max_tokens for lane in state.lanes.values() if lane.start), default=1)
    for name, lane in state.lanes.items():
        tokens, _ = lane.by(shown)
        seconds = lane.seconds if lane.done and tokens == lane.tokens else shown
        unit = " tokens" if width >= 56 else ""
        flag = "✓" if first == name else " "
        right = Text.assemble(f"{flag} ", (f"{tokens:>4}", "bold"), unit, (f"{seconds:>7.2f} s", "bold"))
        cells = max(width - 10 - right.cell_len, 0)
        reached = min(round(2 * cells * tokens / longest), 2 * cells)
        # What was written after the other lane was done is broken.
        other = state.lanes[first] if first and first != name else None
        early = round(2 * cells * lane.by(other.seconds)[0] / longest) if other else reached
        bar = "━" * (min(early, reached) // 2) + "╍" * (reached // 2 - min(early, reached) // 2) + "╸" * (reached % 2)
        left = Text.assemble((f"{name:<9}", f"bold {COLOURS[name]}"), (bar, COLOURS[name]))
        left.append("─" * (9 + cells - left.cell_len), MUTED)
        rows.append(spread(left, right, width))
    return rows


def _rounds(state: RaceState, width: int) -> list[Text]:
    """The newest rounds of the drafted lane, and what their marks mean."""
    lane = state.lanes[DRAFTED]
    newest = lane.rounds[: lane.by(state.shown_seconds)[1]][-ROUNDS:]
    rows = round_rows(newest, lane.start, width - 4) if lane.start else []
    return [edge("├┤", legends(), [Text()], width), *(boxed(row, width) for row in _filled(rows, ROUNDS))]


def _columns(view: RaceView, width: int, height: int) -> list[Text]:
    """Both texts side by side, between edges that hold their names and figures."""
    rooms = (width - 7) // 2, width - 7 - (width - 7) // 2
    side = ("│", MUTED)
    texts = [_filled(view.text_rows(name, room, height), height) for name, room in zip(LANES, rooms, strict=True)]
    rows = [_double("├┬┤", [_joined(_titles(name)) for name in LANES], rooms)]
    for cells in zip(*texts, strict=True):
        one, other = (spread(cell, Text(), room) for cell, room in zip(cells, rooms, strict=True))
        rows.append(Text.assemble(side, " ", one, " ", side, " ", other, " ", side))
    return [*rows, _double("╰┴╯", [_figures(view.state, name, "target pass") for name in LANES], rooms)]


def _filled(rows: list[Text], height: int) -> list[Text]:
    return rows + [Text()] * (height - len(rows))


def _waiting(lane: LaneState, state: RaceState, seconds: float, width: int) -> str:
    """What a lane that has written nothing waits for, in at most `width` cells."""
    if lane.start is None:
        return "waiting for its turn" if state.lanes[PLAIN].start else status_row(WARMING, Step(), seconds, width)
    if lane.prefill_seconds is None or lane.reading:
        step = reading_step(lane.start.prompt_tokens, lane.reading)
        return status_row("draft reads" if step.part else "reading", replace(step, part=""), seconds, width)
    return f"read {count(lane.start.prompt_tokens, 'token')} in {lane.prefill_seconds:.2f} s"


def _titles(name: LaneName) -> list[Text]:
    """The lane's title, and what its styles say."""
    if name == PLAIN:
        return [Text("plain decoding", "bold")]
    return [Text("drafted", "bold"), Text("guessed", GUESSED), Text("target's own", OWN)]


def _figures(state: RaceState, name: LaneName, noun: str) -> Text:
    lane, shown = state.lanes[name], state.shown_seconds
    tokens, passes = lane.by(shown)
    seconds = lane.seconds if lane.done and passes == len(lane.rounds) else shown
    return Text(f"{speed(tokens / seconds)}{SEPARATOR}{count(passes, noun)}") if tokens and seconds else Text()


def _edge(ends: str, lefts: list[Text], right: Text, width: int) -> Text:
    """A horizontal edge; of the words at its left the last ones are dropped where both do not fit."""
    return edge(ends, [_joined(lefts[:kept]) for kept in range(len(lefts), -1, -1)], [right, Text()], width)


def _double(ends: str, words: Sequence[Text], rooms: tuple[int, int]) -> Text:
    """An edge over two columns, with words in each."""
    parts: list[Text | tuple[str, str]] = [(ends[0], MUTED)]
    for shown, room, end in zip(words, rooms, ends[1:], strict=True):
        cut = shown.copy()
        cut.truncate(max(room - 2, 0), overflow="ellipsis")
        inside = Text.assemble(" ", cut, " ") if cut else Text()
        parts += [("─", MUTED), inside, ("─" * (room + 1 - inside.cell_len), MUTED), (end, MUTED)]
    return Text.assemble(*parts)


def _joined(words: Sequence[Text]) -> Text:
    """The words with their own styles, a separator between them."""
    return Text.assemble(*(part for word in words for part in ((SEPARATOR, "dim"), word)))[len(SEPARATOR) :]
