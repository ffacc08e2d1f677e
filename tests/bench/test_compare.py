"""Two results side by side: what differs, and how much faster the second is."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.estimate import Interval
from specdec_cli.bench.report import Change, Row, compare


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=60.0)


def row(rate):
    return Row(2, True, None, rate)


def test_a_bench_beside_itself_differs_in_nothing(result):
    found = compare(result, result)
    ratios = [change.ratio for _, changes in found.changes for change in changes if change.ratio]
    assert not found.differences and ratios and all(ratio.mean == pytest.approx(1.0) for ratio in ratios)


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


def test_only_conditions_that_both_measured_are_compared():
    one = sample_result(budget_seconds=60.0, temperatures=(0.0, 1.0))
    other = sample_result(budget_seconds=60.0, temperatures=(1.0, 0.5))
    assert [title.partition(", ")[2] for title, _ in compare(one, other).changes] == ["temperature 1"]
