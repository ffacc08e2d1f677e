"""Plays recorded events on a display. Order and pace are the recorded ones; every wait can be cancelled."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TextIO

from specdec_cli.core.events import Event, Prefill, RoundDone
from specdec_cli.ui.display import Display
from specdec_cli.ui.panel.live import REFRESH_SECONDS

Answer = Literal["on", "back", "end"]
Pause = Callable[[Event], Answer]
"""Waits before this event; then shows it, or goes back one round, or ends the replay."""
Sleep = Callable[[float], None]

_SLICE_SECONDS: Final = 0.05
NEXT_KEYS: Final = frozenset({"\n", "\r", " ", "\x1b[B", "\x1b[C"})
BACK_KEYS: Final = frozenset({"b", "\x7f", "\x08", "\x1b[D", "\x1b[A"})
QUIT_KEYS: Final = frozenset({"q", "\x1b", "\x04", ""})


def play(events: Iterable[Event], display: Display, pause: Pause) -> bool:
    """Shows the events, each after its pause; False if a pause ended it before the last one.

    Back one round means the reply from its start again, without pauses up to there.
    """
    every = list(events)
    rounds = [at for at, event in enumerate(every) if isinstance(event, RoundDone)]
    place = 0
    while place < len(every):
        answer = pause(every[place])
        if answer == "end":
            return False
        if answer == "back":
            place = max((at for at in rounds if at < place), default=rounds[0])
            for event in every[: place - 1]:
                display.handle(event)
            time.sleep(REFRESH_SECONDS)  # else the display would not draw the last one
            display.handle(every[place - 1])
            continue
        display.handle(every[place])
        place += 1
    return True


def paced(
    speed: float,
    cancelled: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Pause:
    """Waits for the recorded time ÷ `speed` since the first event; infinite speed never waits. Drawing counts."""
    due: float | None = None

    def pause(event: Event) -> Answer:
        nonlocal due
        now = clock()
        due = max(due or now, now - 1.0) + _recorded_seconds(event) / speed
        while (left := due - clock()) > 0.0 and not cancelled():
            sleep(min(left, _SLICE_SECONDS))
        return "end" if cancelled() else "on"

    return pause


def _recorded_seconds(event: Event) -> float:
    """Seconds of work that led to this event."""
    if isinstance(event, Prefill):
        return event.seconds
    if isinstance(event, RoundDone):
        judged = event.round
        return judged.draft_seconds + judged.verify_seconds + judged.draft_prefill_seconds
    return 0.0


def stepped(read_key: Callable[[], str], onward: Pause, sleep: Sleep = time.sleep) -> Pause:
    """Waits for a key before each round: next round, back, run on at `onward`'s pace, or quit."""
    running = False

    def pause(event: Event) -> Answer:
        nonlocal running
        if running:
            return onward(event)
        if not isinstance(event, RoundDone):
            return "on"
        sleep(REFRESH_SECONDS)  # a display draws no faster, and each step must be visible
        while True:
            key = read_key()
            running = key == "r"
            if running or key in NEXT_KEYS:
                return "on"
            if key in QUIT_KEYS or key in BACK_KEYS:
                return "end" if key in QUIT_KEYS else "back"

    return pause


@contextmanager
def keys(stream: TextIO, cancelled: Callable[[], bool]) -> Iterator[Callable[[], str]]:
    """Reads the next key of a terminal, unechoed, an arrow as one; "" at its end and when cancelled."""
    descriptor = stream.fileno()

    def waiting(seconds: float) -> bool:
        return bool(select.select([descriptor], [], [], seconds)[0])

    def read() -> str:
        while not waiting(0.1):
            if cancelled():
                return ""
        pressed = os.read(descriptor, 1)
        if pressed == b"\x1b" and waiting(0.02):  # an arrow key's other two
            pressed += os.read(descriptor, 2)
        return pressed.decode("latin-1")

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
