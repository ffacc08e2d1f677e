"""Costs of rounds: medians of recent rounds over an assumption; what a file holds is believed only if a machine's."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.constants import PREFILL_TOKENS, STALE_ROUNDS, TURN_ROUNDS
from specdec_cli.engine.draft_length.costs import Costs, RoundCosts, costs_from_dict


def measured(assumed=None, plain=1.0, rounds=4):
    costs = RoundCosts(assumed or Costs())
    for _ in range(rounds):
        costs.observe_plain(plain)
    return costs


def drafted(costs, rounds, k, draft, verify):
    for _ in range(rounds):
        costs.observe_drafted(k, draft, verify)
    return costs


@given(st.floats(0.01, 1.0), st.floats(0.01, 2.0), st.integers(1, 8))
def test_before_it_is_measured_a_round_costs_what_is_assumed(ratio, row, k):
    costs = measured(Costs.of_ratio(ratio, row), plain=0.02)
    assert costs.round_steps(k) == pytest.approx(k * ratio + 1 + k * row)
    assert costs.round_steps(0) == 1.0 and costs.plain_seconds() == 0.02


def test_measured_rounds_overrule_the_assumption():
    costs = drafted(measured(Costs.of_ratio(0.2, 0.5)), 30, 3, 0.3, 1.2)
    assert costs.draft_seconds(3) == pytest.approx(0.3, rel=0.1)
    assert costs.pass_steps(4) == pytest.approx(1.2, rel=0.1)


def test_one_spike_moves_an_unknown_cost_by_a_third_at_most_and_a_third_of_spikes_by_nothing():
    costs = measured()
    before = costs.round_steps(2)
    costs.observe_drafted(2, 0.2, 50.0)
    assert costs.round_steps(2) < before * 1.4
    for i in range(30):
        costs.observe_drafted(2, 0.2, 9.0 if i % 3 == 0 else 1.3)
    assert costs.round_steps(2) == pytest.approx(1.5, rel=0.04)


def test_a_k_that_was_not_measured_lies_between_its_measured_neighbours():
    costs = measured(Costs.of_ratio(0.1, 0.9))
    for _ in range(15):
        costs.observe_drafted(1, 0.1, 1.1)
        costs.observe_drafted(5, 0.5, 1.5)
    assert 1.1 < costs.pass_steps(4) < 1.5 < costs.pass_steps(9)


def test_a_size_not_measured_for_long_is_read_off_the_others():
    costs = drafted(measured(Costs.of_ratio(0.1, 0.2)), 15, 3, 0.3, 9.0)
    dear = costs.pass_steps(4)
    drafted(costs, STALE_ROUNDS, 2, 0.2, 1.4)
    assert costs.pass_steps(4) == dear
    costs.observe_drafted(2, 0.2, 1.4)
    assert costs.pass_steps(4) == pytest.approx(1.6, rel=0.05)


def test_a_machine_that_turns_takes_unseen_costs_with_it_until_a_plain_step_is_measured():
    costs = drafted(measured(rounds=12), 12, 3, 0.3, 1.4)
    drafted(costs, TURN_ROUNDS, 3, 0.6, 2.8)
    assert costs.implied and costs.plain_seconds() == pytest.approx(2.0)
    assert costs.round_steps(3) == pytest.approx(1.7, rel=0.05)
    costs.observe_plain(1.5)
    assert not costs.implied and costs.plain_seconds() == 1.5


def test_a_start_much_faster_than_a_plain_step_forgets_what_was_measured():
    """Else a plain step of a busy minute makes drafting look cheap for ever. Control: a start that agrees."""
    assumed = Costs.of_ratio(0.1, 0.2)
    for start, forgotten in ((1.1, True), (1.9, False)):
        costs = drafted(measured(assumed, plain=2.0), 12, 1, 0.2, 1.2)
        costs.observe_start(start)
        assert costs.implied == forgotten
        assert costs.pass_steps(2) == pytest.approx(1.2 if forgotten else 0.65, rel=0.1)
        assert costs.plain_seconds() == (start if forgotten else 2.0)


def test_where_no_plain_step_was_measured_its_start_and_wider_passes_bound_it():
    costs = drafted(RoundCosts(Costs.of_ratio(0.1)), 12, 1, 0.13, 1.3)
    assert costs.plain_seconds() == pytest.approx(1.3 / 1.25)
    costs.observe_start(0.9)
    assert costs.plain_seconds() == 0.9


def test_a_round_that_read_context_too_teaches_no_draft_cost():
    costs = measured()
    before = costs.draft_seconds(2)
    costs.observe_drafted(2, None, 1.4)
    assert costs.draft_seconds(2) == before and costs.most_rows == 3


def test_what_is_written_down_comes_back_through_json():
    costs = drafted(measured(), 15, 2, 0.2, 1.3)
    written = costs_from_dict(json.loads(json.dumps(costs.to_dict())))
    assert (written.verify[3], written.draft[2]) == pytest.approx((1.3, 0.2), rel=0.05)
    assert RoundCosts(written).round_steps(2) == pytest.approx(costs.round_steps(2), rel=0.01)
    assert costs_from_dict(asdict(Costs())) == Costs()  # without a measured row too


GOOD = {"verify": {"2": 1.2}, "draft": {"1": 0.1}, "prefill_token": 0.01, "doubt": 0.1}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"draft": {}}, ValueError),
        ({"verify": {"2": -1}}, ValueError),
        ({"verify": {"x": 1}}, ValueError),
        ({"prefill_token": None}, TypeError),
        ({"verify": None}, AttributeError),
    ],
)
def test_nonsense_is_not_taken_for_costs(change, error):
    assert costs_from_dict(GOOD).rows(2) == 1.2
    with pytest.raises(error):
        costs_from_dict(GOOD | change)
    with pytest.raises(KeyError):
        costs_from_dict({})


def test_reading_is_learned_from_long_stretches_only():
    costs = measured()
    costs.observe_reading(PREFILL_TOKENS - 1, 9.0)
    assert not costs.read_measured
    for _ in range(15):
        costs.observe_reading(100, 2.0)
    assert costs.read_measured and costs.read_seconds() == pytest.approx(0.02, rel=0.05)
