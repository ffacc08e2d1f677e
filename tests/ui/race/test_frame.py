"""The frame of a race: its size, and what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import scripted
from specdec_cli.ui.race.frame import RaceView, frame_rows

PIECES = ("def", "日本 ", " x\n", "    return")


def shown(events, upto=None):
    view = RaceView()
    for event in events[:upto]:
        view.apply(event)
    return view


EVENTS = scripted(PIECES)


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, len(EVENTS)))
def test_no_row_is_too_wide_and_no_frame_too_tall(width, height, upto):
    rows = frame_rows(shown(EVENTS, upto), width, height)
    assert len(rows) <= max(height - 2, 0)
    assert all(row.cell_len <= width and "\n" not in row.plain for row in rows)


@given(st.integers(40, 200), st.integers(8, 60))
def test_a_frame_keeps_its_height_from_the_first_to_the_last(width, height):
    heights = {len(frame_rows(shown(EVENTS, upto), width, height)) for upto in (1, 3, 20, len(EVENTS))}
    assert len(heights) == 1


def test_a_frame_of_80_columns_says_all_of_it():
    rows = [row.plain for row in frame_rows(shown(EVENTS), 80, 16)]
    text = "\n".join(rows)
    assert rows[0].startswith("╭─ race · demo · K 4 ─") and "not enough rounds to compare ─╮" in rows[0]
    assert "plain    ━━━━━" in rows[1] and "32 tokens   0.64 s" in rows[1] and "┃╍" in rows[1]
    assert "✓" in rows[2] and "32 tokens   0.32 s" in rows[2] and "╍" not in rows[2]
    assert "├─ plain decoding ─" in rows[3] and "┬─ drafted · guessed · target's own ─" in rows[3]
    assert "50 tok/s · 32 target passes" in text and "100 tok/s · 8 target passes" in text
    assert {len(row) for row in rows[:3]} == {80}


def test_below_80_columns_the_texts_stand_one_below_the_other():
    rows = [row.plain for row in frame_rows(shown(EVENTS), 60, 24)]
    assert [row[:10] for row in rows if row.startswith("├")] == ["├─ plain d", "├─ drafted"]


@pytest.mark.parametrize(("height", "expected"), [(2, 0), (3, 1), (4, 2), (6, 2), (7, 4)])
def test_a_low_screen_keeps_the_lanes_figures(height, expected):
    assert len(frame_rows(shown(EVENTS), 80, height)) == expected


def test_what_was_written_after_the_first_was_done_is_pale():
    rows = frame_rows(shown(EVENTS), 80, 30)
    dim = [span for row in rows[4:] for span in row.spans if span.style == "dim"]
    assert dim
