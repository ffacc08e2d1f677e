"""Races of tiny real models: their events, whose turn it is, where texts part; state, ratio and interval."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import Clock, FakeReply, scripted
from specdec_cli.apps.race.command import same_text
from specdec_cli.apps.race.events import DRAFTED, PLAIN, LaneStep, RaceState, measure_ratio, race_dict, seconds_at
from specdec_cli.apps.race.race import (
    TURN_SECONDS,
    Lane,
    RacePlan,
    common_tokens,
    find_divergence,
    race,
    turns,
)
from specdec_cli.core.events import RoundDone
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
def session(pair):
    return pair.session()


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


def test_a_turn_ends_with_each_step_of_reading_and_with_the_round_that_fills_it():
    """A long prompt was one turn, so that for minutes nothing was drawn but "warming up"."""
    both, _ = lanes([0.04] * 9, [0.04] * 9)
    lengths = [sum(isinstance(step.event, RoundDone) for step in steps) for steps in turns(both, 0.1)]
    assert lengths == [0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 0, 0]


def in_turns(events):
    """The states of the same race as it is really run: the lane with less behind it next."""
    _, *rest = events
    lanes = {name: [e for e in rest if isinstance(e, LaneStep) and e.lane == name] for name in (PLAIN, DRAFTED)}
    state, spent = RaceState(), {PLAIN: 0.0, DRAFTED: 0.0}
    while any(lanes.values()):
        name = min((name for name in lanes if lanes[name]), key=spent.get)
        event = lanes[name].pop(0)
        spent[name] = event.lane_seconds
        state.apply(event)
        yield state


def test_what_is_shown_never_goes_back_nor_further_than_a_lanes_own_time():
    before = 0.0
    for state in in_turns(scripted()):
        assert before <= state.shown_seconds
        before = state.shown_seconds
        for lane in state.lanes.values():
            reached = [tokens for seconds, tokens in lane.marks if seconds <= state.shown_seconds]
            assert lane.by(state.shown_seconds) == (max(reached, default=0), len(reached))
        if state.first == DRAFTED:  # nobody is first before the picture has reached an end
            assert state.shown_seconds >= state.lanes[DRAFTED].seconds


def test_the_lead_is_the_ratio_for_the_tokens_that_both_have():
    leads = [state.lead for state in in_turns(scripted()) if state.lead]
    assert min(leads) > 1.5 and abs(leads[-1] - 2.0) < 0.01


def test_who_has_less_compute_time_behind_it_is_first():
    """32 tokens: 8 drafted rounds of 40 ms are done at 0.32 s, when plain decoding has written 16."""
    *_, state = in_turns(scripted())
    assert state.first == DRAFTED and state.lanes[PLAIN].by(state.lanes[DRAFTED].seconds) == (16, 16)
    *_, state = in_turns(scripted(drafted_seconds=0.2))
    assert state.first == PLAIN and state.lanes[DRAFTED].by(state.lanes[PLAIN].seconds) == (12, 3)


STEPS = [(0.01 * place, place) for place in range(1, 101)]


def marks(rounds, cost):
    """Cumulative (seconds, tokens) of (K, emitted) rounds."""
    seconds, tokens, found = 0.0, 0, []
    for k, emitted in rounds:
        seconds, tokens = seconds + cost(k), tokens + emitted
        found.append((seconds, tokens))
    return found


def rounds_of(tokens, seed=5):
    """(K, emitted) of a reply that is sometimes easy to guess and sometimes not."""
    rng, found, written = random.Random(seed), [(0, 1)], 1
    while written < tokens:
        k = rng.choice([2, 4, 4, 4])
        accepted = 0
        while accepted < k and rng.random() < 0.7:
            accepted += 1
        found.append((k, min(accepted + 1, tokens - written)))
        written += found[-1][1]
    return found


def test_the_ratio_is_that_of_the_seconds_for_the_same_tokens():
    found = measure_ratio(STEPS, [(0.02 * place, 4 * place) for place in range(1, 26)], 100)
    assert (found.tokens, found.speedup) == (100, pytest.approx(2.0))
    assert (found.plain_seconds, found.drafted_seconds) == (pytest.approx(1.0), pytest.approx(0.5))


def test_only_the_common_tokens_count_inside_a_round_in_proportion():
    assert seconds_at([(1.0, 1), (3.0, 5)], 3) == 2.0
    assert measure_ratio(STEPS, [(0.02 * place, 4 * place) for place in range(1, 26)], 10).drafted_seconds == 0.05


def test_words_that_are_harder_to_guess_are_no_disturbance():
    rounds = rounds_of(128)
    drafted = marks(rounds, lambda k: 0.01 + 0.002 * k)
    plain = marks([(0, 1)] * 128, lambda k: 0.01)
    found = measure_ratio(plain, drafted, 128, [k for k, _ in rounds])
    assert found.low == pytest.approx(found.speedup) == pytest.approx(found.high)


def test_what_the_draft_reads_once_counts_and_is_no_disturbance():
    drafted = marks([(4, 4)] * 25, lambda k: 0.02)
    late = [drafted[0], *((seconds + 1.0, tokens) for seconds, tokens in drafted[1:])]
    found = measure_ratio(STEPS, late, 100, [4] * 25, [0.0, 1.0])
    assert found.speedup == pytest.approx(1.0 / 1.5)
    assert found.low == pytest.approx(found.high)


@pytest.mark.parametrize("tokens", [0, 4, 15])
def test_too_few_rounds_give_no_interval(tokens):
    found = measure_ratio(STEPS, STEPS, tokens)
    assert found is None if not tokens else (found.speedup, found.low, found.high) == (1.0, None, None)


def strayed(rng, noise, drift, spikes, turn=0.1, tokens=128, seconds=1.0):
    """A race on a machine whose speed strays: independently by round, slowly (for about `seconds`), and in spikes."""
    rounds = {"plain": [(0, 1)] * tokens, "drafted": rounds_of(tokens)}
    spent = dict.fromkeys(rounds, 0.0)
    found = {name: [] for name in rounds}
    level = spike = 0.0

    def cost(k):
        return 0.01 if k == 0 else 0.01 * (1.15 + 0.12 * k)

    while waiting := [name for name in rounds if len(found[name]) < len(rounds[name])]:
        name = min(waiting, key=spent.get)
        end = spent[name] + turn
        while len(found[name]) < len(rounds[name]) and spent[name] < end:
            k, emitted = rounds[name][len(found[name])]
            usual = cost(k)
            level = level * math.exp(-usual / seconds) + drift * math.sqrt(2 * usual / seconds) * rng.gauss(0, 0.7)
            spike = 0.15 if spike <= 0 and rng.random() < spikes * usual else spike
            taken = usual * math.exp(level + noise * rng.gauss(0, 1) - noise**2 / 2) * (2.5 if spike > 0 else 1)
            spike, spent[name] = spike - taken, spent[name] + taken
            written = found[name][-1][1] if found[name] else 0
            found[name].append((spent[name], written + emitted))
    truth = sum(cost(k) for k, _ in rounds["plain"]) / sum(cost(k) for k, _ in rounds["drafted"])
    ks = [k for k, _ in rounds["drafted"]]
    return measure_ratio(found["plain"], found["drafted"], tokens, ks), truth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "drift", "spikes"),
    [(0.05, 0, 0), (0.2, 0, 0), (0.05, 0.15, 0), (0.05, 0.3, 0), (0.05, 0, 1.0), (0.1, 0.2, 1.0)],
)
def test_the_interval_holds_the_truth_in_at_least_nine_of_ten_races(noise, drift, spikes):
    """N = 200 seeded races each; at a true coverage of 95 % fewer than 180 have odds below 1 in 400."""
    rng = random.Random(1)
    found = [strayed(rng, noise, drift, spikes) for _ in range(200)]
    assert sum(one.low <= truth <= one.high for one, truth in found) >= 180


@pytest.mark.slow
def test_an_interval_of_a_third_of_its_width_would_be_found_out():
    """The control of the test above."""
    rng = random.Random(1)
    held = 0
    for _ in range(200):
        one, truth = strayed(rng, 0.2, 0, 0)
        held += abs(math.log(truth / one.speedup)) <= math.log(one.high / one.low) / 6
    assert held < 150
