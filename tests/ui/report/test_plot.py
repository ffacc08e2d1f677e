"""The plots' parts add up."""

import re

import pytest

from fakes.report import costs
from specdec_cli.ui.report.plot import passes, seconds_of, shares


def test_building_queueing_and_waiting_add_up_to_the_pass():
    for cost in costs(0.02):
        parts = [seconds_of(cost, f"{name}_seconds") for name in ("build", "queue", "wait")]
        assert sum(parts) == pytest.approx(cost["total_seconds"])


def test_bars_reach_from_0_to_100_percent():
    heights = [float(found) for found in re.findall(r'height="([\d.]+)"', shares("x", costs(0.02)))]
    columns = [sum(heights[at : at + 3]) for at in range(0, len(heights), 3)]
    assert columns == pytest.approx([columns[0]] * 6, abs=0.2)


def test_lines_of_different_length_share_one_axis():
    drawn = passes("x", [("target", "target", costs(0.02)), ("draft", "draft", costs(0.003)[:2])])
    assert drawn.count("<circle") == 6 + 1 and drawn.count("<rect") == 2 + 1
