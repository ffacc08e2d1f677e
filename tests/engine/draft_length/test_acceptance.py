"""Acceptance rates by position: shrunk where little was seen, and recent."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.acceptance import Acceptance
from specdec_cli.engine.draft_length.constants import PRIOR


def observed(rounds, k, accepted, acceptance=None):
    acceptance = acceptance or Acceptance()
    for _ in range(rounds):
        acceptance.observe(k, accepted)
    return acceptance


def test_before_anything_was_seen_every_rate_is_the_prior():
    assert Acceptance().rates(3) == pytest.approx([PRIOR] * 3) and Acceptance().frontier == 0


def test_tokens_after_the_first_rejection_are_not_judged():
    assert observed(20, 8, 2).frontier == 3


def test_an_unseen_position_has_the_rate_of_all():
    rates = observed(20, 2, 1).rates(4)
    assert rates[0] > 0.85 and rates[1] < 0.2 and rates[1] < rates[2] == rates[3] < rates[0]


@given(st.lists(st.integers(1, 8).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), max_size=60))
def test_rates_are_odds_whatever_came(rounds):
    acceptance = Acceptance()
    for k, accepted in rounds:
        acceptance.observe(k, accepted)
        assert all(0 < rate < 1 for rate in acceptance.rates(10)) and 0 < acceptance.habit < 1
        assert acceptance.frontier <= 8


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_a_rate_is_known_within_a_sixth_after_a_hundred_rounds(rate):
    """N = 200 records; a window of 32 rounds has a standard deviation of at most 0.09 (seeded, bound 3 of them)."""
    luck, errors = random.Random(1), []
    for _ in range(200):
        acceptance = Acceptance()
        for _ in range(100):
            acceptance.observe(1, int(luck.random() < rate))
        errors.append(acceptance.rates(1)[0] - rate)
    assert abs(sum(errors) / len(errors)) < 0.05
    assert sum(abs(error) < 0.27 for error in errors) >= 195


def test_recent_rounds_count_more():
    turned = observed(32, 4, 0, observed(64, 4, 4))
    assert turned.rates(1)[0] < 0.45 < observed(64, 4, 4).rates(1)[0]


def test_a_later_process_starts_from_the_long_run_rate():
    first = observed(50, 2, 2)
    later = Acceptance(first.all_judged, first.all_accepted)
    assert later.rates(1) == pytest.approx([first.habit]) and later.frontier == 0
