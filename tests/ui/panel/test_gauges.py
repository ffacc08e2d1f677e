"""The panel's figures as bars."""

from __future__ import annotations

from specdec_cli.ui.panel.gauges import bar


def test_the_bar_marks_the_usual_band_and_the_rate_by_shape() -> None:
    assert bar(0.0, 20).plain == "──────────┼╌╌╌╌╌┼───"
    assert bar(0.625, 20).plain == "━━━━━━━━━━╋━╸╌╌╌┼───"
    assert bar(1.0, 20).plain == "━━━━━━━━━━╋━━━━━╋━━━"
