"""Rows, kinds, costs and words of a result, and two results side by side."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.estimate import Interval
from specdec_cli.bench.report import (
    Change,
    Report,
    Row,
    acceptance_by_position,
    best_reports,
    compare,
    cost_curve,
    reports,
    sum_rounds,
)
from specdec_cli.bench.result import Condition, Contender, CostSample
from specdec_cli.bench.sentences import json_text
from specdec_cli.ui.bench.page import cells, html_page
from specdec_cli.ui.bench.terminal import kinds_table, legend, rows_table


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


def test_every_kind_with_enough_prompts_has_a_best_k_and_says_whether_it_pays(report):
    assert report.kinds
    for row in report.kinds:
        assert sum(at.kind == row.kind for at in report.prompts) >= 3
        assert row.speedup.mean > 1 and row.worth_it == (row.speedup.low > 1)
        assert row.advice == ("" if row.worth_it else "within noise")


def test_without_costs_there_is_no_cost_of_a_pass(report):
    bare = Report(replace(report.result, costs=()), report.condition)
    assert bare.curve is None and all(row.verify_steps is None for row in bare.rows)


def test_one_contender_is_recommended_for_each_temperature():
    contenders = (Contender("model", "org/a"), Contender("ngram"))
    found = reports(sample_result(budget_seconds=200.0, contenders=contenders, temperatures=(0.0, 1.0)))
    assert len(found) == 4 and [one.condition.temperature for one in best_reports(found)] == [0.0, 1.0]


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
    found = sum_rounds(answers[:1])
    assert (found.acceptance_rate, found.judged_rate) == (5 / 10, 5 / 8)
    assert (found.mean_acceptance_length, found.draft_share) == (9 / 4, 1 / 4)
    assert sum_rounds([]).acceptance_rate is None


def test_acceptance_by_position_counts_the_rounds_that_drafted_so_far(answers):
    assert acceptance_by_position(answers) == [3 / 5, 1 / 3, 1 / 3]
    assert acceptance_by_position([]) == []


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=60.0)


def row(rate):
    return Row(2, True, None, rate)


def test_every_setting_and_version_that_differs_is_named_with_both_values(result):
    other = replace(result, environment=replace(result.environment, chip="Apple M5", versions={"mlx": "0.33.0"}))
    found = compare(result, other).differences
    assert found["chip"] == ("Apple M4 Pro", "Apple M5") and found["mlx"] == ("0.32.0", "0.33.0")
    assert found["mlx-lm"] == ("0.32.2", "–") and "pair" not in found


def test_the_variances_of_two_benches_add_up():
    """Each known within a factor of 1.1: together within 1.1 to the square root of 2."""
    change = Change(2, row(Interval(100, 100 / 1.1, 110, 8)), row(Interval(120, 120 / 1.1, 132, 8)))
    assert change.ratio.mean == pytest.approx(1.2) and change.ratio.prompts == 8
    assert change.ratio.high / change.ratio.mean == pytest.approx(1.1 ** (2**0.5))


def test_an_unknown_rate_or_a_single_prompt_gives_no_ratio():
    known = Interval(100, 90, 110, 8)
    assert Change(2, row(known), row(None)).ratio is None
    assert Change(2, row(known), row(replace(known, prompts=1))).ratio is None


@pytest.fixture(scope="module")
def few():
    """Interrupted: no K has more than two prompts."""
    return sample_result(cancel_after=20)


@pytest.fixture(scope="module")
def losing():
    return sample_result("M1 Pro", kinds={"chat": 0.4, "prose": 0.3})


def plain(table, width=100):
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_too_few_prompts_are_called_so_everywhere(few):
    """The terminal called it predicted, the page "too few", and the plots drew it as measured."""
    (report,) = reports(few)
    row = next(row for row in report.rows if row.k == "auto")
    assert (row.source, row.speedup.prompts) == ("too few", row.speedup.prompts)
    assert cells(row)[3] == "too few"
    line = next(line for line in plain(rows_table(report, 100)).splitlines() if line.startswith(" auto"))
    assert re.match(r" auto +\?\d", line)
    assert "? of fewer than 3 prompts" in legend(report)
    assert '"source": "too few"' in json_text(few)
    assert 'class="few"' in html_page(few)


def test_the_best_k_of_a_kind_that_loses_is_0(losing):
    """K 1 at 0.95 times plain decoding was called the best."""
    (report,) = reports(losing)
    assert report.recommendation.chosen == 0
    lost = [row for row in report.kinds if row.k == 0]
    assert lost and all((row.speedup.mean, row.advice) == (1.0, "decode plainly") for row in lost)
    assert all(row.speedup.mean > 1 for row in report.kinds if row.k != 0)
    assert "decode plainly" in plain(kinds_table(report.kinds, 80), 80)


def test_every_interval_that_is_wider_than_its_figure_is_explained(few):
    (report,) = reports(few)
    shown = plain(rows_table(report, 100))
    assert "±>" not in shown
    assert ("±?" in shown) == ("±?" in legend(report))
