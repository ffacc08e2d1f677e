"""The order of the lanes' turns, on a clock that only work moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import Clock, FakeReply
from specdec_cli.apps.race.events import DRAFTED, PLAIN
from specdec_cli.apps.race.race import Lane, turns
from specdec_cli.core.events import RoundDone
from specdec_cli.session.meter import Stopwatch

SECONDS = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30)


def lanes(plain, drafted, queued=0.0):
    clock = Clock()
    replies = [FakeReply(clock, seconds, queued) for seconds in (plain, drafted)]
    made = [
        Lane(name, reply.events(), Stopwatch(clock), reply.settle)
        for name, reply in zip((PLAIN, DRAFTED), replies, strict=True)
    ]
    return made, replies


@given(SECONDS, SECONDS, st.floats(0.0, 0.5), st.floats(0.0, 0.3))
def test_no_lane_with_more_seconds_than_another_that_still_runs_goes_next(plain, drafted, turn, queued):
    both, _ = lanes(plain, drafted, queued)
    before = {lane.name: (lane.seconds, lane.done) for lane in both}
    for steps in turns(both, turn):
        running = {name: seconds for name, (seconds, done) in before.items() if not done}
        if running:
            assert running[steps[0].lane] == min(running.values())
        before = {lane.name: (lane.seconds, lane.done) for lane in both}


@given(SECONDS, SECONDS, st.floats(0.0, 0.5))
def test_a_lane_is_billed_its_rounds_alone_whatever_the_other_takes(plain, drafted, turn):
    both, _ = lanes(plain, drafted)
    list(turns(both, turn))
    assert [lane.seconds for lane in both] == [pytest.approx(sum(plain)), pytest.approx(sum(drafted))]


def test_work_that_a_lane_left_on_the_device_is_billed_to_this_lane():
    """Without the wait the plain lane's next pass would run in the drafted lane's time."""
    both, _ = lanes([0.1] * 4, [0.1] * 4, queued=0.03)
    list(turns(both, 0.0))
    # The last round is followed by no turn of its own.
    assert [lane.seconds for lane in both] == [pytest.approx(4 * 0.1 + 3 * 0.03)] * 2


def test_no_lane_is_asked_for_its_end_while_the_other_still_decodes():
    """The end of a reply empties mlx's cache of buffers: the slower lane paid for it with its remaining rounds."""
    both, replies = lanes([0.1] * 20, [0.1] * 3)
    for steps in turns(both, 0.1):
        if any(isinstance(step.event, RoundDone) for step in steps):
            assert not any(reply.asked_for_the_end for reply in replies)
    assert all(reply.asked_for_the_end for reply in replies)


def test_a_turn_ends_with_the_round_that_fills_it():
    both, _ = lanes([0.04] * 9, [0.04] * 9)
    lengths = [sum(isinstance(step.event, RoundDone) for step in steps) for steps in turns(both, 0.1)]
    assert lengths == [0, 0, 3, 3, 3, 3, 3, 3, 0, 0]
