"""Costs of rounds: medians of recent rounds over an assumption; what a file holds is believed only if a machine's."""

import json
from dataclasses import asdict

import pytest

from specdec_cli.engine.planning.costs import Costs, RoundCosts
from specdec_cli.engine.planning.tuning import TURN_ROUNDS


def measured(assumed=None, plain=1.0, rounds=4):
    costs = RoundCosts(assumed or Costs())
    for _ in range(rounds):
        costs.observe_plain(plain)
    return costs


def drafted(costs, rounds, k, draft, verify):
    for _ in range(rounds):
        costs.observe_drafted(k, draft, verify)
    return costs


def test_one_spike_moves_an_unknown_cost_by_a_third_at_most_and_a_third_of_spikes_by_nothing():
    costs = measured()
    before = costs.round_steps()[2]
    costs.observe_drafted(2, 0.2, 50.0)
    assert costs.round_steps()[2] < before * 1.4
    for i in range(30):
        costs.observe_drafted(2, 0.2, 9.0 if i % 3 == 0 else 1.3)
    assert costs.round_steps()[2] == pytest.approx(1.5, rel=0.04)


def test_a_k_that_was_not_measured_lies_between_its_measured_neighbours():
    costs = measured(Costs.of_ratio(0.1, 0.9))
    for _ in range(15):
        costs.observe_drafted(1, 0.1, 1.1)
        costs.observe_drafted(5, 0.5, 1.5)
    assert 1.1 < costs.pass_steps()[3] < 1.5 < costs.pass_steps()[8]


def test_a_machine_that_turns_keeps_its_ratios_and_forgets_its_seconds():
    costs = drafted(measured(rounds=12), 12, 3, 0.3, 1.4)
    before = costs.round_steps()[3]
    drafted(costs, TURN_ROUNDS, 3, 0.6, 2.8)
    assert not costs.ready and costs.plain_seconds() == pytest.approx(2.0, rel=0.05)
    assert costs.round_steps()[3] == pytest.approx(before, rel=0.05)
    costs.observe_plain(1.5)
    assert costs.ready and costs.plain_seconds() == 1.5


def test_a_start_much_faster_than_a_plain_step_forgets_what_was_measured():
    """Else a plain step of a busy minute makes drafting look cheap for ever. Control: a start that agrees."""
    for start, forgotten in ((1.1, True), (1.9, False)):
        costs = drafted(measured(Costs.of_ratio(0.1, 0.2), plain=2.0), 12, 1, 0.2, 2.4)
        costs.observe_start(start)
        assert costs.plain_seconds() == (start if forgotten else 2.0)


def test_what_is_written_down_comes_back_through_json():
    costs = drafted(measured(), 15, 2, 0.2, 1.3)
    written = Costs.from_dict(json.loads(json.dumps(costs.to_dict())))
    assert (written.verify[3], written.draft[2]) == pytest.approx((1.3, 0.2), rel=0.05)
    assert RoundCosts(written).round_steps()[2] == pytest.approx(costs.round_steps()[2], rel=0.01)
    assert Costs.from_dict(asdict(Costs())) == Costs()  # without a measured row too


def test_a_plain_step_measured_at_a_slow_moment_is_taken_for_no_dearer_than_two_rows():
    costs = drafted(measured(plain=3.0), 3, 1, 0.2, 1.2)
    assert costs.plain_seconds() == 1.2
