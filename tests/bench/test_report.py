"""Rows and kinds of a report, from a simulated bench."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import Report, recommended, reports, totals
from specdec_cli.bench.result import Contender


@pytest.fixture(scope="module")
def report():
    return reports(sample_result(budget_seconds=120.0))[0]


def test_the_baseline_comes_first_with_a_speed_up_of_one(report):
    first = report.rows[0]
    assert (first.k, first.measured, first.speedup.mean, first.speedup.low) == (0, True, 1.0, 1.0)


def test_every_measured_k_has_a_row_and_the_recommended_one_is_among_them(report):
    ks = [row.k for row in report.rows]
    assert ks == [k for k in report.result.settings.ks if k in ks] and {0, 2, 4, "auto"} <= set(ks)
    assert report.recommendation.k in {row.k for row in report.rows if row.measured}
    assert all(row.ttft_seconds is not None and row.speedup is not None for row in report.rows)


def test_acceptance_falls_and_yield_grows_with_k(report):
    """On the prompts that all of these K have answered."""
    shared = set.intersection(*({s.prompt for s in report.samples(k)} for k in (1, 2, 4)))
    found = [totals(s for s in report.samples(k) if s.prompt in shared) for k in (1, 2, 4)]
    rates, yields = [one.acceptance_rate for one in found], [one.mean_acceptance_length for one in found]
    assert len(shared) >= 3 and rates == sorted(rates, reverse=True) and yields == sorted(yields)


def test_every_kind_with_enough_prompts_has_a_best_k_and_says_whether_it_pays(report):
    assert report.kinds
    for row in report.kinds:
        assert sum(at.kind == row.kind for at in report.prompts) >= 3
        assert row.speedup.mean > 1 and row.worth_it == (row.speedup.low > 1)
        assert row.advice == ("" if row.worth_it else "within noise")


def test_totals_of_the_kinds_add_up_to_those_of_all(report):
    whole, parts = report.totals(2), [report.totals(2, kind) for kind in report.result.settings.kinds]
    assert sum(part.rounds for part in parts) == whole.rounds > 0
    assert sum(part.accepted for part in parts) == whole.accepted


def test_without_costs_there_is_no_cost_of_a_pass(report):
    bare = Report(replace(report.result, costs=()), report.condition)
    assert bare.curve is None and all(row.verify_steps is None for row in bare.rows)


def test_one_contender_is_recommended_for_each_temperature():
    contenders = (Contender("model", "org/a"), Contender("ngram"))
    found = reports(sample_result(budget_seconds=200.0, contenders=contenders, temperatures=(0.0, 1.0)))
    assert len(found) == 4 and [one.condition.temperature for one in recommended(found)] == [0.0, 1.0]
