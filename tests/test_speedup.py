"""S(K) by hand: tokens of a round, its cost, and the acceptance that pays for it."""

import pytest

from specdec_cli.speedup import break_even_acceptance


@pytest.mark.parametrize(("k", "acceptance"), [(1, 0.3), (4, 0.62), (8, 0.9)])
def test_break_even_acceptance_inverts_the_papers_expectation(k, acceptance):
    tokens = (1 - acceptance ** (k + 1)) / (1 - acceptance)
    assert break_even_acceptance(tokens, k) == pytest.approx(acceptance)


def test_no_acceptance_pays_for_more_tokens_than_a_round_can_yield():
    assert break_even_acceptance(5.01, 4) is None
    assert break_even_acceptance(5.0, 4) == pytest.approx(1.0)
