"""The values that a bench measured."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.result import Contender, plain


@pytest.mark.parametrize(
    ("contender", "name"),
    [
        (Contender("ngram"), "ngram"),
        (Contender("model", "org/Small-4bit"), "Small-4bit"),
        (Contender("model", "/models/small/"), "small"),
        (Contender("auto", "org/Small"), "auto with Small"),
    ],
)
def test_a_contender_has_a_short_name(contender, name):
    assert contender.name == name


def test_only_the_drafter_auto_runs_at_k_auto_alone():
    assert [Contender(name).chooses_k for name in ("model", "ngram", "auto")] == [False, False, True]


def test_conditions_are_every_contender_at_every_temperature_in_order():
    contenders = (Contender("model", "org/a"), Contender("ngram"))
    result = sample_result(budget_seconds=20.0, contenders=contenders, temperatures=(0.0, 1.0))
    assert [(c.contender.name, c.temperature) for c in result.conditions] == [
        ("a", 0.0),
        ("ngram", 0.0),
        ("a", 1.0),
        ("ngram", 1.0),
    ]


def test_drift_compares_the_repeated_baseline_with_the_first_of_its_prompt():
    result = sample_result(budget_seconds=60.0)
    first = next(sample for sample in result.samples if sample.arm == plain(0.0))
    slower = replace(first, phase="drift", decode_seconds=2 * first.decode_seconds)
    assert replace(result, samples=(first, slower)).drift == pytest.approx(-0.5)
    assert replace(result, samples=(first,)).drift is None


def slower_at_the_end(result, verify, plain_step):
    """`result` with the later half of its rounds dearer by these factors."""
    middle = len(result.costs) // 2
    later = [
        replace(one, verify_seconds=verify * one.verify_seconds, plain_seconds=plain_step * one.plain_seconds)
        for one in result.costs[middle:]
    ]
    return replace(result, costs=(*result.costs[:middle], *later))


def test_passes_of_several_rows_that_become_dearer_are_seen_though_plain_steps_do_not():
    """An M5 Max verified four rows in 37 ms and three runs later in 50; one row stayed, and so did every reading."""
    result = sample_result(budget_seconds=120.0)
    assert result.row_drift == pytest.approx(0.0, abs=0.05)
    assert slower_at_the_end(result, 1.35, 1.0).row_drift == pytest.approx(0.35, abs=0.07)
    assert slower_at_the_end(result, 1.35, 1.35).row_drift == pytest.approx(0.0, abs=0.05)
    assert replace(result, costs=result.costs[:8]).row_drift is None
