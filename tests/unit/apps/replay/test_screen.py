"""Playing a trace: order and pace."""

from __future__ import annotations

import pytest

from fakes.ui_script import script
from specdec_cli.apps.replay.screen import paced, play
from specdec_cli.core.events import Event


def never():
    return False


class Clock:
    """Time passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Recorder:
    """Keeps what it is shown, and when."""

    def __init__(self, clock: Clock) -> None:
        self.shown: list[tuple[Event, float]] = []
        self._clock = clock

    def handle(self, event: Event) -> None:
        self.shown.append((event, self._clock()))

    def close(self) -> None: ...


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_events_come_when_their_work_was_done_divided_by_the_speed(speed):
    clock = Clock()
    recorder = Recorder(clock)
    assert play(script(), recorder, paced(speed, never, clock, clock.sleep))
    assert [event for event, _ in recorder.shown] == script()
    times = [(when - 100.0) * speed for _, when in recorder.shown]
    # Prefill 0.4 s, a plain round 9.4 ms, the drafting ones 2.1 ms more.
    assert times == pytest.approx([0, 0.4, 0.4094, 0.4209, 0.4324, 0.4439, 0.4554, 0.4554])


def test_a_cancelled_wait_ends_the_replay_within_a_slice():
    clock = Clock()
    recorder = Recorder(clock)
    assert not play(script(), recorder, paced(0.001, lambda: clock.now > 101.0, clock, clock.sleep))
    assert clock.now < 101.2 and len(recorder.shown) == 1
