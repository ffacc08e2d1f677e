"""Rows and kinds of a report, from a simulated bench."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.report import Report, recommended, reports
from specdec_cli.bench.result import Contender


@pytest.fixture(scope="module")
def report():
    return reports(sample_result(budget_seconds=120.0))[0]


def test_the_baseline_comes_first_with_a_speed_up_of_one(report):
    first = report.rows[0]
    assert (first.k, first.measured, first.speedup.mean, first.speedup.low) == (0, True, 1.0, 1.0)


def test_every_k_has_a_row_measured_where_confirmed_and_predicted_elsewhere(report):
    assert [row.k for row in report.rows] == [0, 1, 2, 3, 4, 5, 6, 7, 8, "auto"]
    assert report.recommendation.k in {row.k for row in report.rows if row.measured}
    predicted = [row for row in report.rows if not row.measured]
    assert predicted and all(row.ttft_seconds is None and row.speedup is not None for row in predicted)


def test_acceptance_falls_and_yield_grows_with_k(report):
    rows = [row for row in report.rows if isinstance(row.k, int) and row.k]
    rates, yields = [row.acceptance_rate for row in rows], [row.mean_acceptance_length for row in rows]
    assert rates == sorted(rates, reverse=True) and yields == sorted(yields)


def test_every_kind_has_a_best_k_and_says_whether_it_pays(report):
    assert [row.kind for row in report.kinds] == list(report.result.settings.kinds)
    assert all(row.worth_it in (True, False, None) and row.speedup.mean > 1 for row in report.kinds)


def test_totals_of_the_kinds_add_up_to_those_of_all(report):
    whole, parts = report.totals(2), [report.totals(2, row.kind) for row in report.kinds]
    assert sum(part.rounds for part in parts) == whole.rounds
    assert sum(part.accepted for part in parts) == whole.accepted


def test_without_costs_nothing_is_predicted(report):
    bare = Report(replace(report.result, costs=()), report.condition)
    assert bare.curve is None and bare.totals(2).rounds == 0
    assert not any(one.predicted for one in bare.estimates)


def test_one_contender_is_recommended_for_each_temperature():
    contenders = (Contender("model", "org/a"), Contender("ngram"))
    found = reports(sample_result(budget_seconds=200.0, contenders=contenders, temperatures=(0.0, 1.0)))
    assert len(found) == 4 and [one.condition.temperature for one in recommended(found)] == [0.0, 1.0]
