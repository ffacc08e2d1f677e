"""Costs of rounds: medians of recent rounds over an assumption, which they outlive where drafting rests."""

import pytest

from fakes.machine import assumed as assumed_costs
from specdec_cli.engine.planning.costs import START_STEPS, Costs, RoundCosts


def measured(assumed=None, plain=1.0, rounds=4):
    costs = RoundCosts(assumed or Costs())
    for _ in range(rounds):
        costs.observe_plain(plain, queued=True, followed=True)
    return costs


def drafted(costs, rounds, k, draft, verify):
    for _ in range(rounds):
        costs.observe_drafted(k, draft, verify)
    return costs


def test_the_first_round_of_a_size_makes_it_seem_no_dearer_and_outliers_move_nothing():
    costs = measured(assumed_costs(0.1, 0.15))
    before = costs.round_steps()[2]
    costs.observe_drafted(2, 20.0, 50.0)
    assert costs.round_steps()[2] == before
    for i in range(30):
        costs.observe_drafted(2, 0.2, 9.0 if i % 3 == 0 else 1.3)
    assert costs.round_steps()[2] == pytest.approx(1.5, rel=0.04)


def test_a_k_that_was_not_measured_lies_between_its_measured_neighbours():
    costs = measured(assumed_costs(0.1, 0.9))
    drafted(drafted(costs, 5, 1, 0.1, 1.1), 5, 5, 0.5, 1.5)
    assert 1.1 < costs.pass_steps()[3] < 1.5 < costs.pass_steps()[8]


def test_what_was_measured_of_drafting_can_be_forgotten_and_with_it_what_an_earlier_process_kept():
    assumed, kept = assumed_costs(0.1, 0.2), assumed_costs(3.0, 2.0)
    costs, expected = RoundCosts(assumed, kept), RoundCosts(assumed).round_steps()
    for _ in range(3):
        costs.observe_plain(1.0, True, True)
        costs.observe_drafted(2, 6.0, 5.0)
    assert costs.round_steps()[2] > 10
    costs.forget()
    assert costs.round_steps() == expected and costs.plain_measured


@pytest.mark.parametrize(
    "rounds",
    [
        [(1 + START_STEPS, False, False)],  # one round between drafted ones
        [(0.3, False, True), (1.78, True, False)],  # what the first did not wait for, the second did
        [(0.3, False, True), (1.0, True, True), (1.78, True, False)],  # the middle one tells
    ],
)
def test_a_plain_step_is_what_rounds_that_overlap_took_together(rounds):
    costs = RoundCosts(Costs())
    for seconds, queued, followed in rounds:
        costs.observe_plain(seconds, queued, followed)
    assert costs.plain_seconds() == pytest.approx(1.0)


def test_a_plain_step_measured_at_a_slow_moment_is_taken_for_no_dearer_than_two_rows():
    costs = drafted(measured(plain=3.0), 3, 1, 0.2, 1.2)
    assert costs.plain_seconds() == 1.2
