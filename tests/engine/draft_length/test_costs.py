"""Costs of rounds: medians over an assumption, read at the machine's speed of today."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.costs import PREFILL_TOKENS, CostRecord
from specdec_cli.engine.draft_length.ratios import Costs, costs_from_dict
from specdec_cli.speedup import TYPICAL_ROW_COST


def test_one_spike_moves_an_unknown_cost_by_a_third_at_most_and_nine_spikes_of_thirty_by_nothing():
    costs = CostRecord(Costs())
    for _ in range(3):
        costs.plain(1.0)
    before = costs.round_seconds(2)
    costs.drafted(2, 0.2, 50.0)
    assert costs.round_seconds(2) < before * 1.4
    for i in range(30):
        costs.drafted(2, 0.2, 9.0 if i % 3 == 0 else 1.3)
    assert costs.round_seconds(2) == pytest.approx(1.5, rel=0.03)


def test_a_machine_that_slows_down_takes_unseen_costs_with_it():
    costs = CostRecord(Costs())
    for _ in range(12):
        costs.plain(1.0)
    for _ in range(12):
        costs.drafted(3, 0.3, 1.4)
    for _ in range(40):
        costs.drafted(3, 0.6, 2.8)
    assert costs.plain_seconds() == pytest.approx(2.0, rel=0.1)


def measured(assumed=None, plain=1.0, rounds=4):
    costs = CostRecord(assumed or Costs())
    for _ in range(rounds):
        costs.plain(plain)
    return costs


@given(st.floats(0.01, 1.0), st.floats(0.01, 2.0), st.integers(1, 8))
def test_before_it_is_measured_a_round_costs_what_is_assumed_in_plain_steps(ratio, row, k):
    costs = measured(Costs.of_ratio(ratio, row), plain=0.02)
    assert costs.round_seconds(k) == pytest.approx(0.02 * (k * ratio + 1 + k * row))
    assert costs.round_seconds(0) == pytest.approx(0.02)


def test_an_assumption_that_says_nothing_of_rows_takes_the_typical_cost():
    assert Costs().rows(4) == pytest.approx(1 + 3 * TYPICAL_ROW_COST) and Costs().rows(1) == 1.0


def test_two_plain_rounds_make_it_ready():
    costs = CostRecord(Costs())
    assert not costs.ready
    costs.plain(1.0)
    costs.plain(0.0)  # a clock that did not move is no measure
    assert not costs.ready
    costs.plain(1.0)
    assert costs.ready and costs.plain_seen() == (2, 0)


def test_measured_rounds_overrule_the_assumption():
    costs = measured(Costs.of_ratio(0.5, 0.9))
    for _ in range(30):
        costs.drafted(3, 0.3, 1.2)
    assert costs.draft_seconds(3) == pytest.approx(0.3, rel=0.1)
    assert costs.verify_seconds(3) == pytest.approx(1.2, rel=0.1)


def test_a_k_that_was_not_measured_lies_between_its_measured_neighbours():
    costs = measured(Costs.of_ratio(0.1, 0.9))
    for _ in range(20):
        costs.drafted(1, 0.1, 1.1)
        costs.drafted(5, 0.5, 1.5)
    assert 1.1 < costs.verify_seconds(3) < 1.5 < costs.verify_seconds(8)


def test_reading_is_learned_from_long_stretches_only():
    costs = measured()
    costs.prefilled(PREFILL_TOKENS - 1, 9.0)
    assert not costs.prefill_known
    costs.prefilled(100, 2.0)
    assert costs.prefill_known and costs.prefill_token_seconds() == pytest.approx(0.02)


def test_a_round_that_read_context_too_teaches_no_draft_cost():
    costs = measured()
    before = costs.draft_seconds(2)
    costs.drafted(2, None, 1.4)
    assert costs.draft_seconds(2) == before and costs.plain_seen()[1] == 1


def test_what_is_written_down_comes_back_through_json():
    costs = measured()
    for _ in range(10):
        costs.drafted(2, 0.2, 1.3)
    written = costs.to_costs()
    assert costs_from_dict(json.loads(json.dumps(asdict(written)))) == written
    assert (written.verify[3], written.draft[2]) == pytest.approx((1.3, 0.2), rel=0.05)


def drafted_alone(seconds, rounds=12, restart=1.0):
    """A machine on which no plain step was measured: drafting began at once."""
    costs = CostRecord(Costs.of_ratio(0.1))
    costs.begin()
    costs.restarted(restart)
    for _ in range(rounds):
        costs.drafted(1, 0.1 * seconds, seconds)
    return costs


def test_starts_of_the_pipeline_bound_a_plain_step_by_their_median():
    """Negative control: the least of many is the machine's best moment, and would make drafting look dear."""
    costs = drafted_alone(1.3)
    for seconds in (1.0, 0.5, 1.0, 1.0):
        costs.restarted(seconds)
    assert costs.plain_seconds() == pytest.approx(1.0)
    once = drafted_alone(1.3, restart=0.5)
    assert once.plain_seconds() == pytest.approx(0.5)


def test_a_machine_that_became_faster_between_two_replies_has_no_cheaper_plain_step():
    """The reply's first round is read at the speed that the five after it show."""
    costs = drafted_alone(1.3)
    before = costs.round_seconds(1) / costs.plain_seconds()
    costs.begin()
    costs.restarted(0.5)
    assert costs.round_seconds(1) / costs.plain_seconds() == pytest.approx(before)
    for _ in range(5):
        costs.drafted(1, 0.065, 0.65)
    assert costs.round_seconds(1) / costs.plain_seconds() == pytest.approx(before, rel=0.01)
    assert costs.plain_seconds() == pytest.approx(0.5, rel=0.01)
