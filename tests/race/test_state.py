"""The state of a race: both lanes at one compute time."""

from __future__ import annotations

from itertools import pairwise

from fakes.racing import scripted
from specdec_cli.race.events import DRAFTED, PLAIN, LaneStep, RaceState


def states(events):
    state = RaceState()
    for event in events:
        state = state.apply(event)
        yield state


def in_turns(events):
    """The same race as it is really run: the lane with less behind it next."""
    start, *rest = events
    lanes = {
        name: [event for event in rest if isinstance(event, LaneStep) and event.lane == name]
        for name in (PLAIN, DRAFTED)
    }
    yield start
    spent = {PLAIN: 0.0, DRAFTED: 0.0}
    while any(lanes.values()):
        name = min((name for name in lanes if lanes[name]), key=spent.get)
        event = lanes[name].pop(0)
        spent[name] = event.lane_seconds
        yield event
    yield rest[-1]


def test_no_lane_is_shown_further_than_its_own_time_allows():
    for state in states(in_turns(scripted())):
        for lane in (state.plain, state.drafted):
            reached = [seconds for seconds in lane.seconds if seconds <= state.shown_seconds]
            assert lane.rounds_by(state.shown_seconds) == len(reached)


def test_the_time_that_is_shown_never_goes_back():
    shown = [state.shown_seconds for state in states(in_turns(scripted()))]
    assert all(before <= after for before, after in pairwise(shown))


def test_the_lead_is_the_ratio_for_the_tokens_that_both_have():
    leads = [state.lead for state in states(in_turns(scripted())) if state.lead]
    assert min(leads) > 1.5 and abs(leads[-1] - 2.0) < 0.01


def test_the_photo_finish_keeps_how_far_the_other_lane_was():
    """32 tokens: 8 drafted rounds of 40 ms are done at 0.32 s, when plain decoding has written 16."""
    *_, state = states(in_turns(scripted()))
    assert state.first == DRAFTED and state.photo_finish == (PLAIN, 16)


def test_a_slower_draft_loses_the_photo_finish():
    *_, state = states(in_turns(scripted(drafted_seconds=0.2)))
    assert state.first == PLAIN and state.photo_finish == (DRAFTED, 12)


def test_nobody_is_first_before_the_picture_has_reached_an_end():
    for state in states(in_turns(scripted())):
        if state.first == DRAFTED:
            assert state.shown_seconds >= state.drafted.last_seconds
