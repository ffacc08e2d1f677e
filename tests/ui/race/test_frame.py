"""The frame of a race: its size, its lanes' texts, and what it says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.racing import scripted
from fakes.ui_script import drafted
from specdec_cli.audit.divergence import Divergence, Token
from specdec_cli.race.events import Measured, RaceFinish
from specdec_cli.ui.race.frame import GUESSED, OWN, LaneText, RaceView, frame_rows, lead, ratio, same_text, verdict

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


@settings(max_examples=15, deadline=None)
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


def fed(*rounds, prompt="", coloured=True):
    text = LaneText(coloured, prompt)
    for place, (pieces, own) in enumerate(rounds):
        text.feed(drafted(place, list(pieces), len(pieces), own))
    return text


def styles(row):
    return {row.plain[span.start : span.end]: str(span.style) for span in row.spans}


def joined(row, style):
    return "".join(row.plain[span.start : span.end] for span in row.spans if str(span.style) == style)


def test_what_the_draft_guessed_and_what_the_target_wrote_differ_without_colour():
    (row,) = fed((("ab", "cd"), "ef")).rows(1, 1, 20, 4)
    assert (joined(row, GUESSED), joined(row, OWN)) == ("abcd", "ef")
    assert "bold" in OWN and "bold" not in GUESSED


def test_plain_decoding_is_not_coloured():
    (row,) = fed((("ab",), "ef"), coloured=False).rows(1, 1, 20, 4)
    assert not joined(row, GUESSED) and not joined(row, OWN)


def test_a_sequence_split_over_tokens_and_rounds_never_reaches_the_screen():
    text = fed((("a\x1b", "]0;ti"), "tle"), (("\x07b",), "\x1b[2Jc"))
    assert [row.plain for row in text.rows(2, 2, 20, 4)] == ["abc"]


def test_markup_is_text():
    assert fed((("[link=http://x]",), "[/link]")).rows(1, 1, 40, 2)[0].plain == "[link=http://x][/link]"


def test_the_last_rows_are_kept_and_folded_at_words():
    rows = fed((("one two three four\nfive",), " six\nseven")).rows(1, 1, 9, 3)
    assert [row.plain for row in rows] == ["four", "five six", "seven"]


def test_an_earlier_time_shows_what_was_written_by_then():
    text = fed((("a",), "b"), (("c",), "d"), prompt="say ")
    assert [text.rows(rounds, rounds, 20, 2)[0].plain for rounds in (1, 2)] == ["say ab", "say abcd"]


def test_the_prompt_that_is_continued_is_dim_and_what_came_late_too():
    (row,) = fed((("a",), "b"), (("c",), "d"), prompt="say ").rows(2, 1, 20, 2)
    assert joined(row, "dim") == "say cd"


def test_long_lines_and_wide_characters_fit():
    rows = fed((("日本語" * 30,), "x" * 50)).rows(1, 1, 10, 5)
    assert len(rows) == 5 and all(row.cell_len <= 10 for row in rows)


@pytest.mark.parametrize(
    ("speedup", "low", "high", "words"),
    [
        (1.62, 1.55, 1.7, "1.62× faster (1.55–1.70)"),
        (0.83, 0.79, 0.88, "slower, 0.83× (0.79–0.88)"),
        (1.02, 0.95, 1.09, "no difference (0.95–1.09)"),
        (1.3, 0.9, 1.9, "cannot tell yet (0.90–1.90)"),
        (2.0, None, None, "not enough rounds to compare"),
    ],
)
def test_a_ratio_comes_with_its_interval_and_no_more_than_it_shows(speedup, low, high, words):
    assert ratio(Measured(100, 2.0, 1.0, speedup, low, high)) == words


@pytest.mark.parametrize(
    ("found", "words"),
    [(1.62, "drafted 1.62× ahead"), (0.5, "plain 2.00× ahead"), (1.01, "neck and neck"), (None, "off they go")],
)
def test_the_lead_names_who_is_ahead(found, words):
    assert lead(found) == words


def test_a_near_tie_is_named_with_both_tokens_and_its_gap():
    found = Divergence(56, Token(13, " b\x1b"), Token(12, " a"), 0.0123, 0.031)
    finish = RaceFinish("done", (60, 60), (60, 20), None, found)
    assert same_text(finish) == "a near-tie: token 57 is ␣a (12), in plain decoding ␣b␛ (13), gap 0.012 ≤ 0.031"
    assert finish.near_tie


def test_a_difference_that_no_rounding_makes_is_named_as_one():
    far = Divergence(3, Token(13, "b"), Token(12, "a"), 5.0, 0.031)
    ended = Divergence(3, Token(13, "b"), None, math.inf, 0.0)
    words = [same_text(RaceFinish("done", (9, 9), (9, 3), None, found)) for found in (far, ended)]
    assert words[0].startswith("more than a near-tie: token 4") and "gap 5 > 0.031" in words[0]
    assert words[1] == "the texts differ: token 4 is nothing, in plain decoding b (13), and no rounding does that"


def test_the_verdict_says_times_and_passes():
    finish = RaceFinish("done", (100, 100), (100, 41), Measured(100, 1.96, 1.21, 1.62, 1.55, 1.7))
    assert verdict(finish) == [
        "same text ✓",
        "1.62× faster (1.55–1.70): 1.21 s instead of 1.96 s",
        "41 target passes for 100 tokens, against 100",
    ]


def test_a_ratio_of_the_common_part_says_so():
    finish = RaceFinish("interrupted", (40, 60), (40, 20), Measured(40, 1.0, 0.5, 2.0, 1.8, 2.2))
    assert verdict(finish)[1].endswith("instead of 1.00 s for the first 40 tokens")
