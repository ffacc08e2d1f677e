"""The panel's figures as bars and columns."""

from __future__ import annotations

import pytest

from fakes.ui_script import folded
from specdec_cli.ui.panel.gauges import acceptance, bar, positions, tokens_per_pass

FIGURES = folded().figures


def test_the_bar_marks_where_drafting_starts_to_pay_by_shape() -> None:
    assert bar(0.0, 0.35, 20).plain == "───────┼────────────"
    assert bar(0.625, 0.35, 20).plain == "━━━━━━━╋━━━━╸───────"
    assert bar(1.0, 1.0, 20).plain == "━━━━━━━━━━━━━━━━━━━╋"
    assert bar(0.625, None, 20).plain == "━━━━━━━━━━━━╸───────"
    assert bar(0.625, 1.4, 20).plain == bar(0.625, None, 20).plain


def test_the_bar_does_not_move_when_the_rate_gains_a_digit() -> None:
    lengths = {
        sum(cell in "━╸─╋┼" for cell in acceptance({"draft_acceptance_rate": rate}, 0.35, 76).plain.partition("%")[0])
        for rate in (0.0, 0.05, 0.5, 1.0)
    }
    assert len(lengths) == 1


@pytest.mark.parametrize("drafted", [1, 4, 8, 16, 31])
@pytest.mark.parametrize("width", [32, 56, 76, 116])
def test_positions_of_any_draft_length_fit_in_one_row(drafted: int, width: int) -> None:
    row = positions({"acceptance_per_position": [0.5] * drafted}, width)
    assert row.cell_len == width
    bars = sum(char in "▁▂▃▄▅▆▇█" for char in row.plain)
    assert bars == drafted or (row.plain.endswith("…") and bars == width - 10)


def test_columns_show_how_many_passes_gave_how_many_tokens() -> None:
    rows = tokens_per_pass((0, 8, 0, 4, 1), FIGURES, 76)
    assert [row.plain[:46].rstrip() for row in rows] == [
        "         ████████",
        "passes   ████████          ████████ ▂▂▂▂▂▂▂▂",
        "tokens   1: 62 %  2: 0 %   3: 31 %  4: 8 %",
    ]
    assert rows[0].plain.endswith("tokens per pass 2.8")


def test_long_drafts_have_thinner_columns_with_every_second_name() -> None:
    counts = (0, *range(1, 18))
    for width, named in ((76, "1  2  3 "), (56, "1   3   5"), (44, "1   3   5")):
        rows = tokens_per_pass(counts, FIGURES, width)
        assert all(row.cell_len == width for row in rows)
        assert rows[-1].plain.removeprefix("tokens   ").startswith(named)
    assert tokens_per_pass((0, 1), FIGURES, 10)  # no room at all
