"""Races of tiny real models: the same text, whatever drafts, and each lane as if it were alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specdec_cli.events import Failure, Finish, Start
from specdec_cli.race.events import DRAFTED, LANES, PLAIN, LaneStep, RaceFinish, RaceStart, race_dict
from specdec_cli.race.race import TURN_SECONDS, RacePlan, race, same_text
from specdec_cli.request import Request
from specdec_cli.session.load import load

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


@pytest.mark.parametrize("turn_seconds", [0.0, 0.02])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("k", "drafter"), [(1, "model"), (4, "model"), ("auto", "auto"), (3, "ngram"), (0, "auto")])
def test_both_lanes_write_what_a_plain_reply_writes(pair, k, drafter, temperature, turn_seconds):
    request = Request(max_tokens=24, k=k, drafter=drafter, seed=3)
    plan, events = raced(pair, request, temperature, turn_seconds=turn_seconds)
    *_, alone = pair.session().reply(plan.ids, plan.plain, raw=True)
    assert texts(events) == {PLAIN: alone.text, DRAFTED: alone.text}
    finish = events[-1]
    assert finish.same_text and finish.reason == "done"
    assert finish.tokens[0] == finish.tokens[1] == finish.measured.tokens == alone.stats["emitted_tokens"]


def test_the_lane_seconds_are_those_of_its_own_rounds(pair):
    """Each session reads a clock that stands still while the other lane works: no round contains the other's time."""
    _, events = raced(pair, Request(max_tokens=24, k=3, drafter="model"))
    for name in LANES:
        steps = [event for event in events if isinstance(event, LaneStep) and event.lane == name]
        rounds = [step.event.round for step in steps if step.event.event == "round"]
        spent = sum(one.draft_seconds + one.verify_seconds + one.draft_prefill_seconds for one in rounds)
        assert spent <= steps[-1].lane_seconds * 1.2 + 0.02


def test_a_sampled_race_names_the_seed_that_it_drew(pair):
    _, events = raced(pair, Request(max_tokens=4, k=2), 0.8)
    seeds = {event.event.seed for event in events if isinstance(event, LaneStep) and isinstance(event.event, Start)}
    assert len(seeds) == 1 and None not in seeds


def test_an_interruption_ends_both_lanes(pair):
    seen = []
    plan = RacePlan(Request(max_tokens=200, k=3), pair.text_tokens(PROMPT), PROMPT, raw=True, turn_seconds=0.0)
    for event in race(pair, plan, lambda: len(seen) > 30):
        seen.append(event)
    reasons = [event.event.reason for event in seen if isinstance(event, LaneStep) and isinstance(event.event, Finish)]
    assert reasons == ["interrupted", "interrupted"]
    assert seen[-1].reason == "interrupted" and seen[-1].same_text
    assert max(seen[-1].tokens) < 200


def test_an_interruption_before_the_first_token_ends_with_nothing_measured(pair):
    _, events = raced(pair, Request(max_tokens=20, k=3), cancelled=lambda: True)
    assert events[-1].reason == "interrupted" and events[-1].measured is None


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


def test_a_failure_and_a_start_have_their_own_objects():
    assert race_dict(Failure("a", "b", 5))["event"] == "error"
    assert race_dict(RaceStart("p", "x", False, "m", 0.1))["raw"] is False
    assert race_dict(RaceFinish("interrupted", (0, 0), (0, 0), None))["measured"] is None
