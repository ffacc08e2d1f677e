"""Playing a trace: order, pace, keys; and the command as a person runs it."""

from __future__ import annotations

import os
import termios
import threading
import time
from itertools import pairwise

import pytest

from fakes.ui_script import Terminal, script
from specdec_cli.core.events import Event, RoundDone
from specdec_cli.ui.panel.live import PanelDisplay
from specdec_cli.ui.replay import keys, paced, play, stepped


def never():
    return False


def on(event):
    return "on"


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


def pressed(keys: str) -> tuple[Recorder, bool]:
    clock, left = Clock(), list(keys)
    recorder = Recorder(clock)
    pause = stepped(lambda: left.pop(0) if left else "", paced(1.0, never, clock, clock.sleep), clock.sleep)
    return recorder, play(script(), recorder, pause)


def test_each_step_shows_one_round_and_other_keys_none():
    recorder, finished = pressed(" x\n")
    assert not finished
    assert sum(isinstance(event, RoundDone) for event, _ in recorder.shown) == 2


def test_r_runs_on_to_the_end_and_q_ends_at_once():
    recorder, finished = pressed(" r")
    assert finished and len(recorder.shown) == len(script())
    recorder, finished = pressed("q")
    assert not finished and len(recorder.shown) == 2


def test_b_goes_back_a_round_and_on_from_there():
    recorder, finished = pressed("   b r")
    shown = [event.round.index for event, _ in recorder.shown if isinstance(event, RoundDone)]
    rounds = [event.round.index for event in script() if isinstance(event, RoundDone)]
    assert finished and shown == [*rounds[:3], *rounds[:2], *rounds[2:]]
    recorder, finished = pressed("bbr")  # before the first round it stays there
    assert finished and sum(isinstance(event, RoundDone) for event, _ in recorder.shown) == 5


def test_steps_leave_a_display_time_to_draw_each():
    recorder, _ = pressed("    ")
    times = [when for event, when in recorder.shown if isinstance(event, RoundDone)]
    assert min(later - earlier for earlier, later in pairwise(times)) == pytest.approx(0.1)


def test_a_replay_shows_the_same_screen_as_the_run():
    screens = []
    for pause in (stepped(lambda: " ", on, lambda seconds: None), on):
        terminal = Terminal(90, 30)
        play(script(), PanelDisplay(terminal.out, terminal.err, name="demo"), pause)
        screens.append(terminal.lines())
        terminal.close()
    assert screens[0] == screens[1] and any("14 tokens in 5 passes" in row for row in screens[0])


def test_keys_arrive_one_by_one_and_the_terminal_is_given_back():
    terminal = Terminal(80, 24)
    stream = terminal.out
    before = termios.tcgetattr(stream.fileno())
    with keys(stream, never) as read:
        os.write(terminal._master, b" q\x1b[C\x1b")
        assert [read() for _ in range(4)] == [" ", "q", "\x1b[C", "\x1b"]
    assert termios.tcgetattr(stream.fileno()) == before
    terminal.close()


def test_a_wait_for_a_key_can_be_cancelled():
    terminal = Terminal(80, 24)
    pressed = threading.Event()
    threading.Timer(0.15, pressed.set).start()
    began = time.monotonic()
    with keys(terminal.out, pressed.is_set) as read:
        assert read() == ""
    assert time.monotonic() - began < 5
    terminal.close()
