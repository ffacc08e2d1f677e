"""What drafting should gain and cost, in units of a plain step of one second."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.costs import CostRecord
from specdec_cli.engine.draft_length.estimates import (
    DOUBTED,
    FRESH_ROUNDS,
    PLAIN_DOUBT,
    TYPICAL_REPLY_TOKENS,
    Choice,
    cheapest,
    coming_tokens,
    loss_steps,
    pays,
    plain_doubt,
)
from specdec_cli.engine.draft_length.ratios import Costs

ROW, STEP = 0.25, 0.1


def measured(plain_rounds=4):
    """A row costs a quarter and a draft step a tenth of a plain step."""
    costs = CostRecord(Costs({2: 1 + ROW, 9: 1 + 8 * ROW}, {1: STEP}))
    for _ in range(plain_rounds):
        costs.plain(1.0)
    return costs


def seconds_a_token(k, rates):
    """Leviathan et al., equation 1 with a rate per position, over a round's cost."""
    tokens, accepted = 1.0, 1.0
    for rate in rates[:k]:
        accepted *= rate
        tokens += accepted
    return (k * STEP + 1 + ROW * k) / tokens


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_the_cheapest_token_is_the_least_over_all_k(rates):
    choice = cheapest(rates, measured())
    expected = [seconds_a_token(k, rates) for k in range(1, len(rates) + 1)]
    assert choice.seconds == pytest.approx(min(expected))
    assert seconds_a_token(choice.k, rates) == pytest.approx(choice.seconds)


def test_a_gain_must_be_worth_its_price_twice_and_once_more_for_each_failure():
    choice, costs = Choice(3, 2.0, 0.5), measured()  # half a second saved a token
    assert pays(choice, 100 / 2 / DOUBTED, costs, coming=100)
    assert not pays(choice, 100 / 2 / DOUBTED + 0.01, costs, coming=100)
    assert not pays(choice, 100 / 2 / DOUBTED, costs, coming=100, failures=1)
    assert not pays(Choice(3, 2.0, 1.0), 0.0, costs, coming=100)


def test_a_round_that_nothing_of_is_accepted_loses_all_but_the_plain_step_it_stands_for():
    assert loss_steps(cheapest([0.5], measured()), measured()) == pytest.approx(STEP + ROW)


@given(st.floats(0.0, 3.0))
def test_no_round_beyond_the_first_depth_risks_more_than_is_staked(stake):
    choice = cheapest([0.95] * 8, measured(), stake)
    assert choice.k == 1 or loss_steps(choice, measured()) <= stake + 1e-9


def test_a_long_reply_is_expected_to_go_on_but_never_beyond_its_limit():
    assert coming_tokens(1000, 0) == TYPICAL_REPLY_TOKENS
    assert coming_tokens(1000, 500) == TYPICAL_REPLY_TOKENS + 500
    assert coming_tokens(7, 500) == 7


def test_a_plain_step_is_doubted_the_more_the_longer_ago_and_the_less_often_it_was_measured():
    doubts = {}
    for seen in (2, 8):
        costs = measured(seen)
        assert plain_doubt(costs) == 0.0
        doubts[seen] = []
        for _ in range(3 * FRESH_ROUNDS):
            costs.drafted(2, 2 * STEP, 1 + 2 * ROW)
            doubts[seen].append(plain_doubt(costs))
    assert doubts[2][: FRESH_ROUNDS - 1] == [0.0] * (FRESH_ROUNDS - 1)
    assert doubts[2][FRESH_ROUNDS - 1] > PLAIN_DOUBT / sqrt(2)
    assert doubts[2][-1] > doubts[2][FRESH_ROUNDS - 1] > doubts[8][FRESH_ROUNDS - 1]
