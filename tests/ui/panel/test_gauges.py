"""The panel's figures as bars and columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.ui_script import folded
from specdec_cli.gain import Gain
from specdec_cli.ui.panel.answer import GUESSED
from specdec_cli.ui.panel.gauges import LOSING, acceptance, bar, positions, tokens_per_pass

FIGURES = folded().figures
PAYS = Gain(1.4, 1.1, 1.7, 0.35, 0.3, 0.42)


def test_the_bar_marks_where_drafting_starts_to_pay_by_shape() -> None:
    assert bar(0.0, PAYS, 20).plain == "───────┼────────────"
    assert bar(0.625, PAYS, 20).plain == "━━━━━━━╋━━━━╸───────"
    assert bar(1.0, replace(PAYS, break_even=1.0), 20).plain == "━━━━━━━━━━━━━━━━━━━╋"
    assert bar(0.625, None, 20).plain == "━━━━━━━━━━━━╸───────"


def test_the_bar_has_the_colour_of_a_loss_only_below_all_of_the_doubt() -> None:
    colours = [bar(rate, PAYS, 20).spans[0].style for rate in (0.29, 0.31, 0.5)]
    assert colours == [LOSING, GUESSED, GUESSED]


def test_the_bar_does_not_move_when_the_rate_gains_a_digit() -> None:
    lengths = {
        sum(cell in "━╸─╋┼" for cell in acceptance({"draft_acceptance_rate": rate}, PAYS, 76).plain.partition("%")[0])
        for rate in (0.0, 0.05, 0.5, 1.0)
    }
    assert len(lengths) == 1


@pytest.mark.parametrize(("drafted", "width"), [(1, 32), (31, 32), (8, 76), (31, 116)])
def test_positions_of_any_draft_length_fit_in_one_row(drafted: int, width: int) -> None:
    row = positions({"acceptance_per_position": [0.5] * drafted}, width)
    assert row.cell_len == width
    bars = sum(char in "▁▂▃▄▅▆▇█" for char in row.plain)
    assert bars == drafted or (row.plain.endswith("…") and bars == width - 10)


def test_columns_show_how_many_passes_gave_how_many_tokens() -> None:
    rows = tokens_per_pass((0, 8, 0, 4, 1), FIGURES, 76)
    assert [row.plain.rstrip() for row in rows] == [
        "passes   ████████",
        "         ████████          ████████ ▂▂▂▂▂▂▂▂                        mean 2.8",
        "gave     1: 62 %  2: 0 %   3: 31 %  4: 8 %                   tokens per pass",
    ]
    assert tokens_per_pass((0, 8, 0, 4, 1), FIGURES, 56)[-1].plain.startswith("tokens   1: 62 %")


def test_long_drafts_have_thinner_columns_with_every_second_name() -> None:
    counts = (0, *range(1, 18))
    for width, named in ((76, "1  2  3 "), (56, "1   3   5"), (44, "1   3   5")):
        rows = tokens_per_pass(counts, FIGURES, width)
        assert all(row.cell_len == width for row in rows)
        assert rows[-1].plain[9:].startswith(named)
    assert tokens_per_pass((0, 1), FIGURES, 10)  # no room at all
