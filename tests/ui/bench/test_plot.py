"""Plots: nothing outside, round ticks, valid pictures."""

import re
from xml.etree import ElementTree

import pytest

from fakes.bench_result import sample_result
from specdec_cli.ui.bench.page import svg_summary
from specdec_cli.ui.bench.plot import Mark, speedups, ticks


@pytest.fixture(scope="module")
def result():
    return sample_result()


def test_the_picture_is_valid_needs_no_variables_and_has_its_key(result):
    picture = svg_summary(result)
    ElementTree.fromstring(picture)
    assert "var(" not in picture and "prefers-color-scheme: dark" in picture
    assert "● measured, × too few" in picture and "qwen3-8b on Apple M4 Pro" in picture


def test_marks_stay_inside_the_plot_whatever_their_interval():
    marks = [Mark(1.0, 1.0, 1.0), Mark(1.4, 0.01, 300.0, chosen=True), Mark(1.2, 0.0, float("inf"), "too few"), None]
    drawn = speedups("plot", ["0", "1", "2", "3"], marks)
    heights = [float(y) for y in re.findall(r'(?:cy|y1|y2)="([\d.-]+)"|V([\d.-]+)"', drawn) for y in y if y]
    assert heights and all(0 <= y <= 240 for y in heights)
    assert drawn.count('class="whisker') == 2 and "nan" not in drawn and "inf" not in drawn


@pytest.mark.parametrize(("low", "high"), [(0.95, 1.15), (0.0, 4.1), (0.2, 12.0), (0.85, 1.9)])
def test_ticks_are_round_few_and_inside(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 8 and low <= found[0] and found[-1] <= high + 1e-9
    assert all(len(f"{tick:g}") <= 5 for tick in found)
