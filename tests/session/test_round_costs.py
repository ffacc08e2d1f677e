"""Costs of rounds are kept with their doubt, and nonsense is not believed."""

import json
from math import log

import pytest

from specdec_cli.session.round_costs import (
    BELIEVED_SECONDS,
    EARLIER_DOUBT,
    MOST_LUCK,
    MOST_UNEVEN,
    RECENT_DOUBT,
    RECENT_SECONDS,
    REPLIES,
    TYPICAL_REPLIES,
    TYPICAL_SURPRISE,
    UNEVEN_SHARE,
    Doubted,
    KnownCosts,
    costs_from_dict,
    costs_to_dict,
)


def followed(replies, luck=0.001, change=0.0009):
    """What is believed of a cost of 1.5 that became 3, after each of so many replies that measured it so."""
    known = Doubted(log(1.5), luck)
    for _ in range(replies):
        known = Doubted(log(3.0), luck).joined(Doubted(known.log, known.variance + change))
        yield known


def test_a_cost_that_changed_is_followed_within_six_replies():
    """A hot machine verifies five rows slower, and one row as before."""
    *_, last = followed(6)
    assert last.log > log(2.8) and last.variance < 0.005


def test_one_disturbed_measurement_moves_a_cost_little_and_its_doubt_more():
    first = next(followed(1))
    assert first.log < log(1.6) and first.variance > 0.003


def test_what_luck_explains_is_joined_by_its_weights():
    found = Doubted(0.1, 0.01).joined(Doubted(0.0, 0.03))
    assert found.log == pytest.approx(0.075) and found.variance == pytest.approx(0.0075)


def test_costs_survive_the_trip_through_the_file_with_more_doubt_and_not_for_ever():
    costs = {("model", 4): Doubted(0.5, 0.01), ("ngram", 8): Doubted(0.9, 0.2)}
    kept = json.loads(json.dumps(costs_to_dict(KnownCosts(costs, (0.01, 0.02), (0.3, 0.0)), 1000.0)))
    known = costs_from_dict(kept, 2000.0)
    found = known.costs
    assert known.lucks == (0.01, 0.02) and known.surprises == (0.3, 0.0)
    assert {kind: cost.log for kind, cost in found.items()} == {kind: cost.log for kind, cost in costs.items()}
    assert all(found[kind].variance > costs[kind].variance for kind in costs)
    assert costs_from_dict(kept, 1001.0 + BELIEVED_SECONDS) == costs_from_dict(kept, 999.0) == KnownCosts()


def test_what_another_process_found_a_moment_ago_is_doubted_less_than_what_it_found_an_hour_ago():
    kept = costs_to_dict(KnownCosts({("model", 4): Doubted(0.5, 0.01)}), 1000.0)
    ages = (0.0, RECENT_SECONDS / 2, RECENT_SECONDS, 10 * RECENT_SECONDS)
    doubts = [costs_from_dict(kept, 1000.0 + age).costs["model", 4].variance - 0.01 for age in ages]
    assert doubts[0] == pytest.approx(RECENT_DOUBT**2) and doubts[2] == doubts[3] == pytest.approx(EARLIER_DOUBT**2)
    assert doubts[1] == pytest.approx((doubts[0] + doubts[2]) / 2)


@pytest.mark.parametrize(
    "values",
    [
        [],
        {"at": 1.0},
        {"at": "x", "costs": {}, "lucks": [], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [float("nan"), 0.1]}, "lucks": [], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [0.5, -1]}, "lucks": [], "surprises": []},
        {"at": 1.0, "costs": {"model": [0.5, 1]}, "lucks": [], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [900.0, 1]}, "lucks": [], "surprises": []},
        {"at": 1.0, "costs": {"model 4": 3}, "lucks": [], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": 3, "surprises": []},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": [0.1, 0.0], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": [float("nan")], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": [10**400], "surprises": []},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": [0.1]},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": [0.1], "surprises": [-1.0]},
        {"at": 1.0, "costs": {"model 4": [0.5, 1]}, "lucks": [0.1], "surprises": ["x"]},
    ],
)
def test_nonsense_in_the_file_is_not_believed(values):
    assert costs_from_dict(values, 2.0) == KnownCosts()


def test_the_usual_luck_is_that_of_the_last_replies():
    known = KnownCosts()
    for luck in [0.1] * 10 + [0.01] * (REPLIES - 2):
        known = known.learned({}, luck, None)
    assert len(known.lucks) == REPLIES
    assert known.usual_luck(0.02) == pytest.approx((0.1 + 0.01 * (REPLIES - 2) + 0.02) / REPLIES)
    assert KnownCosts().usual_luck(0.02) == 0.02


def test_a_reply_that_cannot_tell_its_luck_moves_the_next_ones_little():
    known = KnownCosts({}, (0.01,) * (REPLIES - 1)).learned({}, 1e300, None)
    assert known.usual_luck(0.01) < 0.03 and KnownCosts().usual_luck(1.0) == MOST_LUCK


def test_where_replies_contradict_each_other_a_cost_comes_and_goes_and_is_doubted_more():
    """A processor whose neighbours slow one row more than four: intervals by luck alone held the truth in 33 of 40."""
    calm = uneven = wild = KnownCosts()
    for _ in range(REPLIES):
        calm, uneven, wild = (one.learned({}, 0.01, at) for one, at in ((calm, 0.0), (uneven, 0.005), (wild, 1e300)))
    assert calm.unevenness(0.0) < KnownCosts().unevenness(None) < uneven.unevenness(0.005) < wild.unevenness(None)
    assert wild.unevenness(1e300) == MOST_UNEVEN and len(wild.surprises) == REPLIES
    assert calm.unevenness(None) == pytest.approx(
        UNEVEN_SHARE * TYPICAL_SURPRISE * TYPICAL_REPLIES / (TYPICAL_REPLIES + 7)
    )
