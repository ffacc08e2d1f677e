"""S(K) by hand: tokens of a round, its cost, and the acceptance that pays for it."""

import pytest

from specdec_cli.gain import (
    break_even_acceptance,
    break_even_share,
    expected_tokens,
    interpolate,
    round_steps,
    speedup,
    tokens_per_round,
)


@pytest.mark.parametrize(("k", "acceptance"), [(1, 0.3), (4, 0.62), (8, 0.9)])
def test_break_even_acceptance_inverts_the_papers_expectation(k, acceptance):
    tokens = (1 - acceptance ** (k + 1)) / (1 - acceptance)
    assert break_even_acceptance(tokens, k) == pytest.approx(acceptance)


def test_no_acceptance_pays_for_more_tokens_than_a_round_can_yield():
    assert break_even_acceptance(5.01, 4) is None
    assert break_even_acceptance(5.0, 4) == pytest.approx(1.0)


def test_tokens_of_a_round_are_the_sum_of_the_products_of_the_rates():
    assert expected_tokens([0.8, 0.5, 0.0, 0.9]) == pytest.approx([1.0, 1.8, 2.2, 2.2, 2.2])
    assert expected_tokens([]) == [1.0]


def test_constant_acceptance_gives_the_geometric_sum():
    assert tokens_per_round(0.5, 3) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert (tokens_per_round(0.0, 4), tokens_per_round(1.0, 4)) == (1.0, 5.0)


def test_a_round_costs_its_draft_steps_and_its_pass():
    assert round_steps(4, 0.1, 1.6) == pytest.approx(2.0)
    assert speedup(3.0, round_steps(4, 0.1, 1.6)) == pytest.approx(1.5)


def test_a_plain_round_is_neither_faster_nor_slower():
    assert speedup(tokens_per_round(0.9, 0), round_steps(0, 0.1, 1.0)) == 1.0


def test_a_table_is_linear_between_its_entries_and_goes_on_with_its_mean_slope():
    table = {1: 1.0, 3: 1.4, 5: 2.2}
    assert [interpolate(table, n) for n in (1, 2, 3, 4, 5)] == pytest.approx([1.0, 1.2, 1.4, 1.8, 2.2])
    assert interpolate(table, 7) == pytest.approx(2.2 + 2 * 0.3)


def test_a_single_entry_goes_on_with_the_given_slope_and_a_falling_table_stays_level():
    assert interpolate({1: 1.0}, 5, slope=0.25) == pytest.approx(2.0)
    assert interpolate({1: 2.0, 4: 1.0}, 9) == 1.0


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("acceptance", [0.3, 0.8, 1.0])
def test_the_break_even_share_is_that_of_drafted_tokens_at_the_judged_break_even(k, acceptance):
    tokens = tokens_per_round(acceptance, k)
    assert break_even_share(tokens, k) == pytest.approx((tokens - 1) / k)
    assert speedup(1 + break_even_share(2.4, k) * k, 2.4) == pytest.approx(1)


def test_the_break_even_share_is_0_where_a_round_costs_no_more_than_a_step_and_above_1_where_nothing_pays():
    assert break_even_share(0.9, 4) == 0
    assert break_even_share(5.4, 4) == pytest.approx(1.1)
