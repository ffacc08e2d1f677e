"""Acceptance rates by position: shrunk where little was seen, forgotten where the text turns."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.acceptance import (
    HABIT_TOKENS,
    KNOWN_TOKENS,
    PRIOR_RATE,
    TURN_DEVIATIONS,
    UNSEEN_WEIGHT,
    WINDOW_ROUNDS,
    AcceptanceRecord,
)


def test_an_unseen_position_follows_from_the_one_before_it():
    """Rule of succession: it is reached only where that one was accepted, which weighs little after 20 rounds."""
    record = AcceptanceRecord()
    for _ in range(20):
        record.drafted(2, 1, 2)
    rates = record.rates(5)
    assert rates[0] > 0.8 and rates[1] < 0.2
    assert rates[1] < rates[2] < rates[1] + 0.05 and max(rates[2:]) < 0.3
    assert record.frontier == 2


def test_before_anything_was_seen_every_rate_is_the_prior_or_one_acceptance_more():
    rates = AcceptanceRecord().rates(4)
    assert rates[0] == pytest.approx(PRIOR_RATE)
    assert rates[1] == pytest.approx((PRIOR_RATE * UNSEEN_WEIGHT + 1) / (UNSEEN_WEIGHT + 1))
    assert all(PRIOR_RATE < rate <= rates[1] for rate in rates[1:])
    assert AcceptanceRecord().frontier == 0


def test_a_draft_is_at_most_twice_as_deep_as_was_judged_until_a_dozen_tokens_were():
    record = AcceptanceRecord()
    assert record.reach == 2
    record.drafted(2, 2, 3)
    assert record.reach == 6
    for _ in range(2 * KNOWN_TOKENS):
        record.drafted(1, 1, 2)
    assert record.reach == float("inf")


def test_hope_lifts_a_rate_the_less_the_more_was_judged():
    few, many = AcceptanceRecord(), AcceptanceRecord()
    few.drafted(1, 0, 1)
    for _ in range(30):
        many.drafted(1, 0, 1)
    lifts = [record.hopeful_rates(1, 1.5)[0] - record.rates(1)[0] for record in (few, many)]
    assert lifts[0] > 2 * lifts[1] > 0
    assert few.hopeful_rates(3, 0.0) == few.rates(3)


@given(st.lists(st.integers(1, 8).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), max_size=60))
def test_rates_are_odds_whatever_came(rounds):
    record = AcceptanceRecord()
    for k, accepted in rounds:
        record.drafted(k, accepted, accepted + 1)
        assert all(0 < rate < 1 for rate in record.rates(10)) and 0 < record.habit < 1
        assert record.frontier <= 8


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_a_rate_is_known_within_a_sixth_after_a_hundred_rounds(rate):
    """N = 200 records; a window of 32 rounds has a standard deviation of at most 0.09 (seeded, bound 3 of them)."""
    luck, errors = random.Random(1), []
    for _ in range(200):
        record = AcceptanceRecord()
        for _ in range(100):
            record.drafted(1, int(luck.random() < rate), 1)
        errors.append(record.rates(1)[0] - rate)
    assert abs(sum(errors) / len(errors)) < 0.05
    assert sum(abs(error) < 0.27 for error in errors) >= 195


@pytest.mark.parametrize("deviations", [TURN_DEVIATIONS, 1e9])
def test_a_text_that_turns_is_noticed_within_a_dozen_rounds(deviations):
    """Negative control: without change detection the window still remembers the old kind."""
    record = AcceptanceRecord(turn_deviations=deviations)
    for _ in range(WINDOW_ROUNDS):
        record.drafted(4, 4, 5)
    for _ in range(5):
        record.drafted(4, 0, 1)
    assert (record.rates(1)[0] < 0.5) == (deviations == TURN_DEVIATIONS)


def test_tokens_after_the_first_rejection_are_not_judged():
    record = AcceptanceRecord()
    for _ in range(20):
        record.drafted(8, 2, 3)
    assert record.frontier == 3


def test_plain_rounds_fade_the_window_and_hardly_the_habit():
    record = AcceptanceRecord()
    for _ in range(20):
        record.drafted(1, 1, 2)
    habit = record.habit
    for _ in range(4 * WINDOW_ROUNDS):
        record.passed(1)
    assert record.frontier == 0 and record.habit == pytest.approx(habit, abs=0.02)
    record.passed(20 * HABIT_TOKENS)
    assert record.habit == pytest.approx(PRIOR_RATE, abs=0.01)


def test_the_habit_is_all_that_outlives_a_process():
    record, later = AcceptanceRecord(), AcceptanceRecord()
    for _ in range(50):
        record.drafted(2, 2, 3)
    later.restore(json.loads(json.dumps(record.to_dict())))
    assert later.habit == pytest.approx(record.habit) and later.frontier == 0
    assert later.rates(1) == pytest.approx([record.habit])
