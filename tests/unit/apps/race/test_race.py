"""Races of tiny real models: the same text, whatever drafts, each lane as if it were alone; whose turn it is next."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import Clock, FakeReply
from specdec_cli.apps.race.events import DRAFTED, PLAIN, LaneStep, race_dict
from specdec_cli.apps.race.race import (
    TURN_SECONDS,
    Lane,
    RacePlan,
    common_tokens,
    find_divergence,
    race,
    same_text,
    turns,
)
from specdec_cli.core.events import Finish, RoundDone
from specdec_cli.core.request import Request
from specdec_cli.measure.rounding import Rounding
from specdec_cli.session.load import load
from specdec_cli.session.meter import Stopwatch

PROMPT = "def read_lines(path):"


@pytest.fixture(scope="module")
def pair(tiny_pair):
    target, draft = map(str, tiny_pair)
    return load(target=target, draft=draft)


def raced(pair, request, temperature=0.0, cancelled=lambda: False, turn_seconds=TURN_SECONDS):
    request = same_text(replace(request, sampling={"temperature": temperature}), temperature)
    plan = RacePlan(request, pair.text_tokens(PROMPT), PROMPT, raw=True, turn_seconds=turn_seconds)
    return plan, list(race(pair, plan, cancelled))


def texts(events):
    return {e.lane: e.event.text for e in events if isinstance(e, LaneStep) and isinstance(e.event, Finish)}


@pytest.mark.parametrize(
    ("k", "drafter", "temperature", "turn_seconds"),
    [
        (4, "model", 0.0, 0.0),
        (4, "model", 0.8, 0.02),
        ("auto", "auto", 0.8, 0.0),
        (3, "ngram", 0.0, 0.02),
        (0, "auto", 0.0, 0.0),
    ],
)
def test_both_lanes_write_what_a_plain_reply_writes(pair, k, drafter, temperature, turn_seconds):
    request = Request(max_tokens=24, k=k, drafter=drafter, seed=3)
    plan, events = raced(pair, request, temperature, turn_seconds=turn_seconds)
    *_, alone = pair.session().reply(plan.ids, plan.plain, raw=True)
    assert texts(events) == {PLAIN: alone.text, DRAFTED: alone.text}
    finish = events[-1]
    assert finish.divergence is None and finish.reason == "done"
    assert finish.tokens[0] == finish.tokens[1] == finish.measured.tokens == alone.stats["emitted_tokens"]


def test_an_interruption_ends_both_lanes(pair):
    seen = []
    plan = RacePlan(
        Request(max_tokens=200, k=3, ignore_eos=True), pair.text_tokens(PROMPT), PROMPT, raw=True, turn_seconds=0.0
    )
    for event in race(pair, plan, lambda: len(seen) > 30):
        seen.append(event)
    reasons = [event.event.reason for event in seen if isinstance(event, LaneStep) and isinstance(event.event, Finish)]
    assert reasons == ["interrupted", "interrupted"]
    assert seen[-1].reason == "interrupted" and seen[-1].divergence is None
    assert max(seen[-1].tokens) < 200


def test_every_event_is_one_json_object_that_says_its_lane(pair):
    _, events = raced(pair, Request(max_tokens=20, k=3))
    values = [json.loads(json.dumps(race_dict(event))) for event in events]
    assert values[0]["event"] == "race" and values[0]["schema"] == 1 and values[0]["prompt"] == PROMPT
    assert {value["lane"] for value in values[1:-1]} == {PLAIN, DRAFTED}
    assert {value["event"] for value in values[1:-1]} == {"start", "prefill", "round", "finish"}
    assert all(value["lane_seconds"] >= 0 for value in values[1:-1])
    last = values[-1]
    assert last["event"] == "race_finish" and last["same_text"] is True and last["divergence"] is None
    assert set(last["measured"]) == {"tokens", "plain_seconds", "drafted_seconds", "speedup", "low", "high"}
    assert last["tokens"] == {"plain": 20, "drafted": 20}


def test_above_temperature_0_a_race_is_coupled_under_a_seed():
    drawn = same_text(Request(), 0.8)
    assert drawn.rule == "coupled" and drawn.seed is not None
    assert same_text(Request(seed=7, rule="coupled"), 0.8).seed == 7


@pytest.fixture(scope="module")
def session(tiny_pair):
    target, draft = map(str, tiny_pair)
    return load(target=target, draft=draft).session()


@pytest.fixture(scope="module")
def plan(session):
    return RacePlan(Request(max_tokens=8, k=2), session.pair.text_tokens("def f("), "def f(", raw=True)


@pytest.fixture(scope="module")
def answer(session, plan):
    return [step.token for step in session.plain(plan.ids, plan.plain)]


@pytest.mark.parametrize(
    ("one", "other", "common"), [([1, 2], [1, 2], 2), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [], 0)]
)
def test_texts_are_common_up_to_the_first_difference(one, other, common):
    assert common_tokens(one, other) == common


def test_another_token_is_more_than_a_near_tie_where_its_score_is_far(session, plan, answer):
    wrong = [*answer[:3], (answer[3] + 1) % 259, *answer[4:]]
    found = find_divergence(session, plan, answer, wrong)
    assert (found.position, found.plain.id, found.specdec.id) == (3, answer[3], wrong[3])
    assert found.gap > found.limit and not found.near_tie


def test_a_gap_within_what_rounding_does_here_is_a_near_tie(session, plan, answer, monkeypatch):
    monkeypatch.setattr(Rounding, "limit", lambda self, temperature=0.0: 1e6)
    wrong = [*answer[:3], (answer[3] + 1) % 259]
    found = find_divergence(session, plan, answer[:4], wrong)
    assert found.near_tie and 0 < found.gap < math.inf


def test_a_text_that_ends_before_the_other_has_no_gap(session, plan, answer):
    found = find_divergence(session, plan, answer, answer[:2])
    assert found.specdec is None and found.gap == math.inf and not found.near_tie


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
