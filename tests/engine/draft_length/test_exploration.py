"""What looks at drafting may cost, over replies and processes. Units: plain steps, tokens, rounds."""

from math import inf

import pytest

from specdec_cli.engine.draft_length.exploration import (
    FIRST_WAIT_ROUNDS,
    LAST_WAIT_ROUNDS,
    LOOK_STEPS,
    Exploration,
)
from specdec_cli.engine.draft_length.look import CREDIT_STEPS, Look


def test_a_first_look_may_lose_a_share_of_all_tokens_so_far_and_allowed():
    assert Exploration().steps(100) == pytest.approx(2.0)
    assert Exploration(tokens=400).steps(100) == pytest.approx(10.0)
    assert Exploration(tokens=400).most_steps(32) == LOOK_STEPS


def test_a_later_look_may_lose_a_share_of_the_time_since_the_last():
    looks = Exploration(tokens=10_000)
    looks.looked()
    assert looks.known and looks.steps(100) == 0.0
    for _ in range(50):
        assert not looks.waits()
    assert looks.steps(100) == pytest.approx(1.0)


def test_gains_may_be_spent_on_the_next_look():
    looks = Exploration(known=True, rounds_since=0.0)
    looks.gave_up(Look(may_lose=2.0, lost=-100.0))
    assert looks.steps(100) == CREDIT_STEPS and looks.failures == 0


def test_waits_double_up_to_the_longest():
    looks, waits = Exploration(), []
    for _ in range(8):
        looks.gave_up(Look(may_lose=2.0, lost=1.0))
        waits.append(looks.wait)
    assert waits == [16, 32, 64, 128, 256, 512, 512, 512]
    assert (waits[0], waits[-1]) == (FIRST_WAIT_ROUNDS, LAST_WAIT_ROUNDS)
    looks.begin(parked=True)
    assert sum(looks.waits() for _ in range(100)) == FIRST_WAIT_ROUNDS


def test_a_first_look_teaches_for_later_replies_too():
    assert Exploration(tokens=1000).taught_tokens(10, 0) == 1064
    assert Exploration(known=True, tokens=1000).taught_tokens(10, 0) == 10


@pytest.mark.parametrize("parked", [True, False])
def test_what_is_kept_comes_back(parked):
    looks = Exploration(known=True, tokens=300, rounds_since=40.0, failures=2, credit_steps=1.0, wait=7)
    later = Exploration()
    later.restore(looks.to_dict(parked))
    # One that was drafting starts at once; one that was parked by its budget.
    assert later == Exploration(tokens=300, failures=2, rounds_since=40.0 if parked else inf)


@pytest.mark.parametrize("name", ["tokens", "rounds_since", "failures"])
@pytest.mark.parametrize("value", [-1, float("nan"), "x", [], 10**400])
def test_nonsense_is_refused(name, value):
    values = {"tokens": 1, "rounds_since": 1.0, "failures": 0, name: value}
    with pytest.raises((TypeError, ValueError, ArithmeticError)):
        Exploration().restore(values)


def test_costs_by_which_nothing_could_pay_are_measured_again_rarely_and_where_it_is_hardly_felt():
    looks = Exploration(known=True, rounds_since=float(LAST_WAIT_ROUNDS))
    assert looks.rechecks(2.0, 100) and not looks.rechecks(2.0, 99)
    assert not Exploration(known=True, rounds_since=LAST_WAIT_ROUNDS - 1.0).rechecks(2.0, 100)
    assert not Exploration().rechecks(2.0, 100)  # never tried: there is nothing to measure again


def test_a_pair_that_usually_pays_need_not_save_up():
    looks = Exploration(known=True, rounds_since=1.0, failures=3)
    looks.forgive()
    assert looks.steps(10) == inf and looks.failures == 0
