"""Two benches side by side on a terminal."""

import io
from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.compare import compare
from specdec_cli.ui.bench.comparison import print_comparison


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=120.0)


def test_a_comparison_says_what_differs_before_what_changed(result, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    other = sample_result("M5 Max, 70B (mlx 3791)", budget_seconds=120.0)
    newer = replace(other, environment=replace(other.environment, versions={"specdec": "0.1.0", "mlx": "0.33.0"}))
    out = io.StringIO()
    print_comparison(out, compare(result, newer), ("a.json", "b.json"))
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["differs", "a.json", "b.json"]
    assert ["mlx", "0.32.0", "0.33.0"] in [line.split() for line in lines]
    rows = [line for line in lines if line.startswith(("1 ", "8 "))]
    assert len(rows) == 2 and "+" in rows[1] and max(map(len, lines)) <= 80


def test_a_bench_beside_itself_did_not_change(result):
    found = compare(result, result)
    assert not found.differences
    ((_, changes),) = found.changes
    assert {change.k for change in changes} == {0, *range(1, 9), "auto"}
    ratios = [change.ratio for change in changes if change.ratio]
    assert len(ratios) > 5 and all(one.mean == pytest.approx(1.0) and one.contains(1.0) for one in ratios)
