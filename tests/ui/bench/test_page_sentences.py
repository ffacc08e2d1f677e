"""The words around the page's figures."""

from dataclasses import replace

import pytest

from fakes.bench_result import sample_result
from specdec_cli.bench.intervals import Interval
from specdec_cli.bench.rows import Row
from specdec_cli.ui.bench.page_sentences import HEADINGS, cells, facts, subtitle, title, warnings


@pytest.fixture(scope="module")
def result():
    return sample_result(budget_seconds=60.0)


def test_title_and_subtitle_say_what_was_measured_where_and_when(result):
    assert title(result) == "qwen3-8b on Apple M4 Pro"
    assert subtitle(result).startswith("target mlx-community/Qwen3-8B-4bit · 2026-01-31 · ")


def test_only_an_interrupted_bench_has_a_warning(result):
    assert warnings(result) == [] and "Interrupted" in warnings(replace(result, partial=True))[0]


def test_facts_name_machine_software_and_ends(result):
    found = dict(facts(result))
    assert found["machine"] == "Apple M4 Pro, 48 GiB, 14 cores, macOS 26.1" and "mlx 0.32.0" in found["software"]
    assert found["answers"].endswith("ends natural, by a stop token")
    fixed = dict(facts(replace(result, settings=replace(result.settings, ends="fixed"))))
    assert fixed["answers"].endswith("ends fixed, stop tokens ruled out")


def test_every_heading_has_a_cell_and_unknown_figures_are_dashes():
    found = cells(Row(3, False, None, None))
    assert len(found) == len(HEADINGS) and found[:4] == ["3", "–", "–", "too few"] and set(found[4:]) == {"–"}


@pytest.mark.parametrize(
    ("row", "spread", "source"),
    [
        (Row(0, True, Interval(1, 1, 1, 9), None), "", "baseline"),
        (Row(2, True, Interval(1.7, 1.61, 1.84, 9), None), "1.61–1.84", "measured"),
        (Row(2, False, Interval(1.7, 1.61, 1.84, 2), None), "–", "too few"),
    ],
)
def test_a_row_says_where_its_speed_up_comes_from(row, spread, source):
    assert cells(row)[2:4] == [spread, source]
