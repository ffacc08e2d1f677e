"""What a spell of drafting may lose, and how much hope it leaves. Units: plain steps."""

import pytest

from specdec_cli.engine.draft_length.look import CREDIT_STEPS, HOPE_DEVIATIONS, LOOK_ROUNDS, Look


def test_a_round_loses_its_steps_less_its_tokens():
    look = Look(may_lose=2.0)
    look.add(1.5, 1)
    assert (look.lost, look.left) == pytest.approx((0.5, 1.5))
    look.add(1.5, 3)
    assert look.lost == pytest.approx(-1.0)


def test_hope_goes_with_the_budget():
    look = Look(may_lose=2.0)
    assert look.hope == HOPE_DEVIATIONS
    look.add(2.0, 1)
    assert look.hope == pytest.approx(HOPE_DEVIATIONS / 2)
    look.add(9.0, 1)
    assert look.hope == 0.0 and Look().hope == 0.0


def test_a_long_good_spell_does_not_pay_for_a_long_bad_one():
    look = Look(may_lose=1.0)
    for _ in range(100):
        look.add(1.0, 5)
    assert look.lost == -CREDIT_STEPS


def test_it_has_only_begun_for_a_few_rounds_and_while_its_budget_lasts():
    look = Look(may_lose=1.0)
    for _ in range(LOOK_ROUNDS):
        assert look.beginning
        look.add(1.0, 1)
    assert not look.beginning
    spent = Look(may_lose=1.0)
    spent.add(3.0, 1)
    assert not spent.beginning
