"""What rounds cost and yield, by hand."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import acceptance_by_position, cost_curve, totals
from specdec_cli.bench.result import Condition, Contender, CostSample

HERE = Condition(Contender("model", "org/draft"), 0.0)


def curve(c=0.1, row=0.25, deepest=8):
    return cost_curve(CostSample(HERE, 100, k, 0.02 * k * c, 0.02 * (1 + k * row), 0.02) for k in range(1, deepest + 1))


def test_costs_are_medians_of_ratios_so_that_a_slower_machine_changes_nothing():
    steady = [CostSample(HERE, 100, 2, 0.004, 0.030, 0.020)] * 3
    slowed = [CostSample(HERE, 100, 2, 0.008, 0.060, 0.040)] * 3
    spiked = [CostSample(HERE, 100, 2, 0.9, 0.9, 0.020)]
    found = cost_curve([*steady, *slowed, *spiked])
    assert found.draft == {2: 0.2} and found.verify == {3: 1.5} and found.draft_step == pytest.approx(0.1)
    assert cost_curve([]) is None


def test_break_even_is_the_acceptance_that_pays_for_the_round():
    """K = 1 costs 1.35 plain steps: 1 + a = 1.35."""
    assert curve().break_even(1) == pytest.approx(0.35)
    assert curve(c=1.0, row=1.0).break_even(4) is None


@pytest.fixture(scope="module")
def answers():
    """Two answers of K 3: ten tokens in four rounds, of which three drafted three tokens and one drafted one."""
    one = next(sample for sample in sample_result(budget_seconds=60.0).samples if sample.arm.k == 3)
    made = replace(
        one, emitted_tokens=10, target_passes=5, draft_n=10, draft_n_accepted=5, rejected_n=3, draft_seconds=1.0,
        verify_seconds=3.0, drafted_at=(4, 3, 3), accepted_at=(3, 1, 1),
    )  # fmt: skip
    return made, replace(made, drafted_at=(1,), accepted_at=(0,))


def test_rates_are_of_all_rounds_behind_the_first_token(answers):
    found = totals(answers[:1])
    assert (found.acceptance_rate, found.judged_rate) == (5 / 10, 5 / 8)
    assert (found.mean_acceptance_length, found.draft_share) == (9 / 4, 1 / 4)
    assert totals([]).acceptance_rate is None


def test_acceptance_by_position_counts_the_rounds_that_drafted_so_far(answers):
    assert acceptance_by_position(answers) == [3 / 5, 1 / 3, 1 / 3]
    assert acceptance_by_position([]) == []
