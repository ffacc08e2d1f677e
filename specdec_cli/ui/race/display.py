"""The display of a race for the command line's options and streams. The verdict is on stdout, the rest on stderr.

On a terminal a region of fixed height is redrawn on stderr, and its last frame stays. Elsewhere, and with `--plain`,
there are lines without control codes: the text, then the figures of both lanes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TextIO

from rich.text import Text

from specdec_cli.format import count, speed
from specdec_cli.race.events import (
    DRAFTED,
    LANES,
    LaneName,
    LaneStep,
    RaceEvent,
    RaceFinish,
    RaceState,
    race_dict,
)
from specdec_cli.ui.export import picture
from specdec_cli.ui.panel.region import LiveRegion
from specdec_cli.ui.plain import AnswerWriter
from specdec_cli.ui.race.frame import (
    NAMES,
    RaceView,
    figures,
    frame_rows,
    headline,
    lead,
    ratio_style,
    settings,
    verdict,
    whole_frame,
)
from specdec_cli.ui.summary import SEPARATOR, flow, print_lines
from specdec_cli.ui.terminal import can_draw, encodable, make_console, safe, terminal_size

REFRESH_SECONDS: Final = 0.1
PICTURE_COLUMNS: Final = 100
IN_TURNS: Final = "one machine, in turns: the lane with less compute time behind it went next"
PROGRESS_SECONDS: Final = 2.0
"""Between two lines of progress where nothing can be drawn."""


class RaceDisplay(Protocol):
    """Shows one race."""

    def handle(self, event: RaceEvent) -> None: ...

    def close(self) -> None:
        """Restores the terminal. A second call changes nothing; a closed stream never raises."""


def race_display(out: TextIO, err: TextIO, *, json: bool, quiet: bool, plain: bool) -> RaceDisplay:
    """The display for these options and streams."""
    if json:
        return JsonRace(out)
    if can_draw(err) and not quiet and not plain:
        return LiveRace(out, err)
    return PlainRace(out, err, quiet, plain)


class JsonRace:
    """Each event as one line of JSON."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def handle(self, event: RaceEvent) -> None:
        self._out.write(json.dumps(race_dict(event), ensure_ascii=True) + "\n")
        self._out.flush()

    def close(self) -> None:
        return


class PlainRace:
    """Lines: the progress on `err` unless `quiet`; at the end the text and the verdict on `out`."""

    def __init__(
        self, out: TextIO, err: TextIO, quiet: bool, plain: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._err, self._quiet, self._plain, self._clock = out, err, quiet, plain, clock
        self._state = RaceState()
        self._told_at = clock()

    def handle(self, event: RaceEvent) -> None:
        self._state = self._state.apply(event)
        if isinstance(event, RaceFinish):
            self._end(event)
        elif isinstance(event, LaneStep) and not self._quiet and self._clock() - self._told_at >= PROGRESS_SECONDS:
            self._told_at = self._clock()
            self._progress()

    def close(self) -> None:
        return

    def _progress(self) -> None:
        state, shown = self._state, self._state.shown_seconds
        counts = [f"{NAMES[name]} {count(state.lane(name).tokens_by(shown), 'token')}" for name in LANES]
        words = SEPARATOR.join([f"{shown:.1f} s", *counts, lead(state.lead)])
        self._err.write(encodable(words + "\n", self._err))
        self._err.flush()

    def _end(self, finish: RaceFinish) -> None:
        state = self._state
        for name in LANES if finish.divergence else (DRAFTED,):
            writer = AnswerWriter(self._out)
            ended = state.lane(name).finish
            writer.write(ended.text if ended else "")
            writer.end()
        console = make_console(self._out, plain=self._plain)
        console.print()
        lines = [SEPARATOR.join(settings(state)), *(lane_line(state, name) for name in LANES), *verdict(finish)]
        for line in lines:
            console.print(Text(line), soft_wrap=True)


class LiveRace:
    """The race as it goes, then its last frame and the verdict."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._out, self._clock = out, clock
        self._size = size or (lambda: terminal_size(err))
        self._region = LiveRegion(make_console(err, plain=False), err, self._size)
        self._view = RaceView()
        self._drawn_at: float | None = None
        self._ended = False

    def handle(self, event: RaceEvent) -> None:
        """Folds one event, and draws if a refresh is due."""
        self._view.apply(event)
        if isinstance(event, RaceFinish):
            self._end(event)
        elif self._drawn_at is None or self._clock() - self._drawn_at >= REFRESH_SECONDS:
            self._region.draw("", self._rows())
            self._drawn_at = self._clock()

    def close(self) -> None:
        """Keeps what was drawn last, and shows the cursor again."""
        if self._drawn_at is None or self._ended:
            return
        self._ended = True
        with contextlib.suppress(OSError, ValueError):
            self._region.release("", self._rows())

    def _rows(self) -> list[Text]:
        return frame_rows(self._view, *self._size())

    def _end(self, finish: RaceFinish) -> None:
        self._ended = True
        self._region.release("", self._rows())
        console = make_console(self._out, plain=False)
        width = min(console.width, self._size()[0])
        print_lines(console, verdict_lines(finish, width), width)


def race_picture(events: Iterable[RaceEvent], suffix: str) -> str:
    """A race that ended, with all of both texts, as a picture or a page."""
    view = RaceView()
    for event in events:
        view.apply(event)
    finish, start = view.state.finish, view.state.start
    assert finish is not None and start is not None
    prompt = [] if start.raw else [Text(f"prompt: {safe(start.prompt)}", "dim")]
    told = [*verdict_lines(finish, PICTURE_COLUMNS), Text(safe(f"{start.machine}{SEPARATOR}{IN_TURNS}"), "dim")]
    rows = [*prompt, *whole_frame(view, PICTURE_COLUMNS), *told]
    return picture(f"specdec race: {headline(view.state)}", rows, suffix, PICTURE_COLUMNS)


def verdict_lines(finish: RaceFinish, width: int) -> list[Text]:
    """The last words in lines of at most `width` cells."""
    styles = ("green" if finish.same_text or finish.near_tie else "bold red", ratio_style(finish), "dim")
    return flow(zip(verdict(finish), styles, strict=False), width)


def lane_line(state: RaceState, name: LaneName) -> str:
    """ "plain    100 tokens in 100 target passes, 1.96 s, 51 tok/s; prompt 0.02 s"."""
    lane = state.lane(name)
    tokens, passes, seconds = figures(lane, lane.last_seconds)
    pace = speed(tokens / seconds if seconds else None)
    counted = f"{count(tokens, 'token')} in {count(passes, 'target pass')}"
    return f"{NAMES[name]:<9}{counted}, {seconds:.2f} s, {pace}; prompt {lane.prefill_seconds or 0.0:.2f} s"
