"""Claims about the growing line and the live region."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from specdec_cli.ui.panel.region import Unfinished, folds_rows, wrap

TEXT = st.text(st.sampled_from("ab cd  日本\n\té́👍x"), max_size=80)
WIDTHS = st.integers(8, 30)


def grown(parts: list[str], width: int) -> str:
    """All rows of an answer that arrives in parts."""
    line = Unfinished()
    return "".join(line.feed(part, width) for part in parts) + line.finish(width)


def cells(row: str) -> int:
    """What a terminal with tab stops every eight cells needs for `row`."""
    column = 0
    for char in row:
        column += 8 - column % 8 if char == "\t" else cell_len(char)
    return column


def test_words_move_to_the_next_row_whole() -> None:
    assert wrap("the quick brown fox jumps", 10) == (["the quick", "brown fox"], "jumps")


def test_a_word_longer_than_the_row_is_cut() -> None:
    assert wrap("a incomprehensibly", 6) == (["a", "incomp", "rehens"], "ibly")


def test_a_space_at_the_end_waits_for_what_follows_it() -> None:
    assert wrap("abcdef ", 6) == ([], "abcdef ")
    assert wrap("abcdef g", 6) == (["abcdef"], "g")


def test_indentation_is_no_place_to_cut() -> None:
    assert wrap("        word", 10) == (["        wo"], "rd")


def test_wide_characters_count_double() -> None:
    assert wrap("日本語日本語", 5) == (["日本", "語日"], "本語")


def test_rows_of_an_answer_are_final_as_soon_as_they_are_full() -> None:
    line = Unfinished()
    assert line.feed("one two", 8) == ""
    assert line.row.plain == "one two"
    assert line.feed(" three\nfo", 8) == "one two\nthree\n"
    assert line.row.plain == "fo"
    assert line.finish(8) == "fo\n"
    assert line.finish(8) == ""


@settings(max_examples=200, deadline=None)
@given(TEXT, st.lists(st.integers(0, 80), max_size=5), WIDTHS)
def test_rows_do_not_depend_on_how_the_answer_arrived(text: str, cuts: list[int], width: int) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[first:last] for first, last in pairwise(places)]
    assert grown(parts, width) == grown([text], width)


@settings(max_examples=200, deadline=None)
@given(TEXT, WIDTHS)
def test_no_row_is_wider_than_the_terminal_and_only_spaces_are_lost(text: str, width: int) -> None:
    shown = grown([text], width)
    assert all(cells(row) <= width for row in shown.split("\n"))
    assert "".join(shown.split()) == "".join(text.split())
    assert shown == "" or shown.endswith("\n")


@pytest.mark.parametrize(
    ("environment", "folds"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/x"}, True),
        ({"TERM": "screen"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"}, False),
    ],
)
def test_terminals_that_cut_rows_are_told_from_those_that_fold_them(environment: dict[str, str], folds: bool) -> None:
    assert folds_rows(environment) is folds
