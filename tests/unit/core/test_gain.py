"""Gain: what is said of an estimate and its interval."""

import pytest

from specdec_cli.core.gain import (
    Gain,
    break_even_acceptance,
    break_even_share,
    expected_tokens,
    interpolate,
    speedup,
    tokens_per_round,
    unknown_words,
)


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Gain(1.4, 1.12, 1.71), "1.40× faster (1.12–1.71)"),
        (Gain(0.83, 0.79, 0.88), "slower, 0.83× (0.79–0.88)"),
        (Gain(1.0, 0.94, 1.07), "no difference (0.94–1.07)"),
        (Gain(1.02, 0.94, 1.11), "cannot tell yet (0.94–1.11)"),
        (Gain(1.1, 0.6, 1.8), "cannot tell yet (0.60–1.80)"),
        (Gain(1.06, 1.0, 1.1), "no difference (1.00–1.10)"),
    ],
)
def test_a_gain_is_said_with_its_interval(gain, said):
    assert gain.sentence == said


@pytest.mark.parametrize(
    ("share", "said"),
    [
        ((0.45, 0.35, 0.6), "pays from ≈ 45 % (35–60)"),
        ((0.45, 0.25, 0.66), ""),
        ((0.9, 0.8, 1.02), ""),
        ((1.3, 1.2, 1.4), ""),
        ((0.45, None, None), ""),
        ((), ""),
    ],
)
def test_a_break_even_is_said_with_its_doubt_or_not_at_all(share, said):
    """The bug: replies to one prompt said "pays from" 33 to 65 %, and one "cannot pay here"."""
    assert Gain(1.4, 1.1, 1.7, *share).pays_from == said


@pytest.mark.parametrize(("rounds", "said"), [(15, "not enough rounds to compare"), (16, "cannot tell yet")])
def test_a_reply_without_a_figure_says_whether_it_was_too_short(rounds, said):
    assert unknown_words(rounds) == said


# S(K) by hand: tokens of a round, its cost, and the acceptance that pays for it.


@pytest.mark.parametrize(("k", "acceptance"), [(1, 0.3), (4, 0.62), (8, 0.9)])
def test_break_even_acceptance_inverts_the_papers_expectation(k, acceptance):
    tokens = (1 - acceptance ** (k + 1)) / (1 - acceptance)
    assert break_even_acceptance(tokens, k) == pytest.approx(acceptance)


def test_tokens_of_a_round_are_the_sum_of_the_products_of_the_rates():
    assert expected_tokens([0.8, 0.5, 0.0, 0.9]) == pytest.approx([1.0, 1.8, 2.2, 2.2, 2.2])
    assert expected_tokens([]) == [1.0]


def test_a_table_is_linear_between_its_entries_and_goes_on_with_its_mean_slope():
    table = {1: 1.0, 3: 1.4, 5: 2.2}
    assert [interpolate(table, n) for n in (1, 2, 3, 4, 5)] == pytest.approx([1.0, 1.2, 1.4, 1.8, 2.2])
    assert interpolate(table, 7) == pytest.approx(2.2 + 2 * 0.3)


@pytest.mark.parametrize(("k", "acceptance"), [(1, 0.3), (4, 0.8), (8, 1.0)])
def test_the_break_even_share_is_that_of_drafted_tokens_at_the_judged_break_even(k, acceptance):
    tokens = tokens_per_round(acceptance, k)
    assert break_even_share(tokens, k) == pytest.approx((tokens - 1) / k)
    assert speedup(1 + break_even_share(2.4, k) * k, 2.4) == pytest.approx(1)
