"""What the rows of the panel say: rounds, the strip, the figures, and the state behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.text import Text

from fakes.ui_script import START, drafted, folded
from specdec_cli.gain import Gain
from specdec_cli.ui.panel.answer import GUESSED
from specdec_cli.ui.panel.gauges import LOSING, bar, positions, tokens_per_pass
from specdec_cli.ui.panel.rounds import round_rows, strip
from specdec_cli.ui.panel.state import KEPT_ROUNDS, PanelState


def rows_of(done, width=76, drafter=""):
    return [row.plain.rstrip() for row in round_rows(done, width, drafter)]


def test_the_target_s_token_is_below_the_rejected_one_or_behind_the_last() -> None:
    rejected = drafted(7, [" line", " in", " self", "."], 2, " path")
    assert rows_of(rejected) == [
        "drafted  ✓ line  ✓ in  ✗ self  · .                           2 of 4 accepted",
        "target                 ↳ path                              1 pass → 3 tokens",
    ]
    accepted = drafted(7, [" line", " in"], 2, " path")
    assert rows_of(accepted) == [
        "drafted  ✓ line  ✓ in                                        2 of 2 accepted",
        "target                 ↳ path                              1 pass → 3 tokens",
    ]
    first = drafted(7, [" line", " in"], 0, " path")
    assert rows_of(first)[1].startswith("target   ↳ path ")


def test_a_long_round_keeps_the_count_the_rejected_and_the_target_s_own_token() -> None:
    long = drafted(7, [" accepted", " words", " without", " end", " rejected", " lost", " too"], 4, " corrected")
    for width in (116, 76, 56):
        above, below = rows_of(long, width)
        assert "4 of 7" in above and "↳" in below and "→ 5" in below
        assert above.index("✗") == below.index("↳")
    assert rows_of(long, 56)[0] == "drafted  ✓ 3 more  ✓ end  ✗ rejec…  · 2 more      4 of 7"


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" word", "✓ word"),
        (" ", "✓ ␣"),
        ("        ", "✓ ␣8"),
        ("\n        ", "✓ ↵␣8"),
        ("   word", "✓ ␣3word"),
        ("\t\t", "✓ ⇥2"),
        ("\x1b[2J", "✓ ␛[2J"),
    ],
)
def test_invisible_characters_are_drawn_and_runs_of_blanks_counted(piece: str, shown: str) -> None:
    assert rows_of(drafted(1, [piece], 1, "x"))[0].startswith(f"drafted  {shown} ")


def test_a_space_that_is_all_the_difference_is_drawn() -> None:
    above, below = rows_of(drafted(1, ["path"], 0, " path"))
    assert above.startswith("drafted  ✗ path ") and below.startswith("target   ↳ ␣path ")


def many(count: int):
    return tuple(drafted(index, ["a", "b"], index % 3, "c") for index in range(count))


def test_the_strip_grows_to_the_right_and_then_moves_with_its_newest_end_in_place() -> None:
    right = Text("tokens per pass 2.0")
    strips = [strip(many(count), many(count)[-1], right, 76).plain for count in (3, 12, 13, 14)]
    assert strips[0].startswith("rounds   ✗ 1   ✓✗ 2  ▸✓✓ 3   ")
    moving = [row.removesuffix("tokens per pass 2.0").rstrip() for row in strips[1:]]
    assert [row.split("▸")[1] for row in moving] == ["✓✓ 3", "✗ 1", "✓✗ 2"]
    assert {len(row) for row in moving} == {76 - 19 - 2}


def test_rounds_without_a_draft_that_follow_one_another_are_one_entry() -> None:
    plain = tuple(drafted(index, [], 0, "x") for index in range(5))
    last = drafted(9, ["a"] * 7, 7, "x")
    assert strip((*plain, last), plain[2], Text(), 76).plain.rstrip() == "rounds   ▸– 1 ×5   ✓✓✓✓✓… 8"


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
    for width, named in ((76, "1  2  3 "), (56, "1   3   5")):
        rows = tokens_per_pass(counts, FIGURES, width)
        assert all(row.cell_len == width for row in rows)
        assert rows[-1].plain[9:].startswith(named)


def test_only_the_rounds_that_are_drawn_are_kept() -> None:
    state = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(100)))
    assert [done.round.index for done in state.recent] == list(range(100 - KEPT_ROUNDS, 100))
    assert state.stats.rounds == 100
    assert state.tokens_per_pass == (0, 0, 100)


def test_a_round_is_shown_for_as_long_as_it_takes_to_read() -> None:
    state = PanelState().apply(START, 0.0)
    shown = []
    for index in range(20):
        state = state.apply(drafted(index, ["a"], 1, "b"), index / 8)
        shown.append(state.shown.round.index)
    assert shown == [index - index % 4 for index in range(20)]
