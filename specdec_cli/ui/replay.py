"""Plays recorded events on a display. Order and pace are the recorded ones; every wait can be cancelled."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, TextIO

from specdec_cli.events import Event, Prefill, RoundDone
from specdec_cli.ui.display import Display
from specdec_cli.ui.panel.live import REFRESH_SECONDS

Pause = Callable[[Event], bool]
"""Waits before this event; False ends the replay."""

_SLICE_SECONDS: Final = 0.05
NEXT_KEYS: Final = frozenset({"\n", "\r", " ", "\x1b[B", "\x1b[C"})
RUN_KEYS: Final = frozenset({"r"})
BACK_KEYS: Final = frozenset({"b", "\x7f", "\x08", "\x1b[D", "\x1b[A"})
QUIT_KEYS: Final = frozenset({"q", "\x1b", "\x04", ""})


def play(events: Iterable[Event], display: Display, pause: Pause) -> bool:
    """Shows the events, each after its pause; False if a pause ended it before the last one.

    A pause that raises Back goes back one round: the reply is shown again from its start, without pauses up to there.
    """
    every = list(events)
    place = 0
    while place < len(every):
        try:
            if not pause(every[place]):
                return False
        except Back:
            place = _before_last_round(every, place)
            _show_again(every[:place], display)
            continue
        display.handle(every[place])
        place += 1
    return True


def _show_again(events: Sequence[Event], display: Display) -> None:
    for event in events[:-1]:
        display.handle(event)
    time.sleep(REFRESH_SECONDS)  # else the display would not draw the last one
    display.handle(events[-1])


def _before_last_round(events: Sequence[Event], place: int) -> int:
    """The place of the round that was shown last, before that of `place`; the first round where there is none."""
    rounds = [at for at, event in enumerate(events) if isinstance(event, RoundDone)]
    shown = [at for at in rounds if at < place]
    return shown[-1] if shown else rounds[0]


def recorded_seconds(event: Event) -> float:
    """Seconds of work that led to this event."""
    match event:
        case Prefill(seconds=seconds):
            return seconds
        case RoundDone(round=judged):
            return judged.draft_seconds + judged.verify_seconds + judged.draft_prefill_seconds
        case _:
            return 0.0


class Paced:
    """Waits for the recorded time ÷ `speed`; infinite speed never waits."""

    def __init__(
        self,
        speed: float,
        cancelled: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed, self._cancelled, self._clock, self._sleep = speed, cancelled, clock, sleep
        self._due: float | None = None

    def __call__(self, event: Event) -> bool:
        """Waits until the sum of recorded times since the first event; the time of drawing counts."""
        now = self._clock()
        self._due = max(self._due or now, now - 1.0) + recorded_seconds(event) / self._speed
        while (left := self._due - self._clock()) > 0.0 and not self._cancelled():
            self._sleep(min(left, _SLICE_SECONDS))
        return not self._cancelled()


class Back(Exception):
    """The round before the last shown one is asked for again."""


class Stepped:
    """Waits for a key before each round: next round, run on at `onward`'s pace, or quit."""

    def __init__(self, read_key: Callable[[], str], onward: Pause, sleep: Callable[[float], None] = time.sleep) -> None:
        self._read_key, self._onward, self._sleep = read_key, onward, sleep
        self._running = False

    def __call__(self, event: Event) -> bool:
        if self._running:
            return self._onward(event)
        if not isinstance(event, RoundDone):
            return True
        self._sleep(REFRESH_SECONDS)  # a display draws no faster, and each step must be visible
        while True:
            key = self._read_key()
            if key in QUIT_KEYS:
                return False
            if key in RUN_KEYS:
                self._running = True
                return True
            if key in NEXT_KEYS:
                return True
            if key in BACK_KEYS:
                raise Back


_LONGEST = 8


class Keys:
    """In this context keys arrive at once and unechoed; an escape sequence arrives as one string."""

    def __init__(self, stream: TextIO, cancelled: Callable[[], bool]) -> None:
        """`stream` must be a terminal; `cancelled` ends a wait."""
        self._descriptor = stream.fileno()
        self._cancelled = cancelled

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def read(self) -> str:
        """The next key; an empty string at the end of input and when cancelled."""
        while not self._cancelled():
            if select.select([self._descriptor], [], [], 0.1)[0]:
                pressed = os.read(self._descriptor, 1)
                while pressed == b"\x1b" or pressed.startswith(b"\x1b["):
                    complete = len(pressed) > 2 and 0x40 <= pressed[-1] <= 0x7E
                    more = not complete and len(pressed) < _LONGEST
                    if not more or not select.select([self._descriptor], [], [], 0.02)[0]:
                        break
                    pressed += os.read(self._descriptor, 1)
                return pressed.decode("latin-1")
        return ""
