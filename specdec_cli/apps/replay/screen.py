"""Plays recorded events on a display. Order and pace are the recorded ones; every wait can be cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from specdec_cli.core.events import Event, Prefill, RoundDone
from specdec_cli.terminal.display import Display

Pause = Callable[[Event], bool]
"""Waits before this event; False ends the replay instead."""
Sleep = Callable[[float], None]

_SLICE_SECONDS: Final = 0.05


def play(events: Iterable[Event], display: Display, pause: Pause) -> bool:
    """Shows the events, each after its pause; False if a pause ended it before the last one."""
    for event in events:
        if not pause(event):
            return False
        display.handle(event)
    return True


def paced(
    speed: float,
    cancelled: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Pause:
    """Waits for the recorded time ÷ `speed` since the first event; infinite speed never waits. Drawing counts."""
    due: float | None = None

    def pause(event: Event) -> bool:
        nonlocal due
        now = clock()
        due = max(due or now, now - 1.0) + _recorded_seconds(event) / speed
        while (left := due - clock()) > 0.0 and not cancelled():
            sleep(min(left, _SLICE_SECONDS))
        return not cancelled()

    return pause


def _recorded_seconds(event: Event) -> float:
    """Seconds of work that led to this event."""
    if isinstance(event, Prefill):
        return event.seconds
    if isinstance(event, RoundDone):
        judged = event.round
        return judged.draft_seconds + judged.verify_seconds + judged.draft_prefill_seconds
    return 0.0
