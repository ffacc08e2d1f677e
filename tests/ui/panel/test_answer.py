"""The answer's rows: wrapped, final as soon as they are full, and coloured without a character more."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from specdec_cli.fates import Fate
from specdec_cli.ui.panel.answer import Unfinished, codes, folds

CODES = {Fate.ACCEPTED: "\x1b[32m", Fate.BONUS: "\x1b[1;33m"}
A, B = Fate.ACCEPTED, Fate.BONUS


def wrapped(line: str, width: int) -> tuple[list[str], str]:
    """The full rows, and the rest."""
    rows, rest = folds(line, 0, len(line), width)
    return [line[start:end] for start, end in rows], line[rest:]


def bare(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


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
    assert wrapped("the quick brown fox jumps", 10) == (["the quick", "brown fox"], "jumps")


def test_a_word_longer_than_the_row_is_cut() -> None:
    assert wrapped("a incomprehensibly", 6) == (["a", "incomp", "rehens"], "ibly")


def test_a_space_at_the_end_waits_for_what_follows_it() -> None:
    assert wrapped("abcdef ", 6) == ([], "abcdef ")
    assert wrapped("abcdef g", 6) == (["abcdef"], "g")


def test_indentation_is_no_place_to_cut() -> None:
    assert wrapped("        word", 10) == (["        wo"], "rd")


def test_wide_characters_count_double() -> None:
    assert wrapped("日本語日本語", 5) == (["日本", "語日"], "本語")


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


def coloured(spans: list[tuple[Fate | None, str]], width: int) -> str:
    line = Unfinished(CODES)
    return "".join(line.feed(text, width, fate) for fate, text in spans) + line.finish(width)


def test_each_run_of_tokens_with_one_fate_is_coloured_once() -> None:
    assert coloured([(A, "def"), (A, " f"), (B, "("), (None, ")")], 20) == ("\x1b[32mdef f\x1b[0m\x1b[1;33m(\x1b[0m)\n")


def test_colours_follow_their_words_onto_the_next_row() -> None:
    assert coloured([(A, "one two"), (B, " three four")], 9) == (
        "\x1b[32mone two\x1b[0m\n\x1b[1;33mthree\x1b[0m\n\x1b[1;33mfour\x1b[0m\n"
    )


def test_a_mark_keeps_the_colour_of_the_character_it_joins() -> None:
    assert coloured([(A, "e"), (B, "\u0301x")], 9) == "\x1b[32me\u0301\x1b[0m\x1b[1;33mx\x1b[0m\n"
    family = "\U0001f468\u200d\U0001f469"
    assert coloured([(A, family[:2]), (B, family[2:])], 9) == f"\x1b[32m{family}\x1b[0m\n"


def test_the_growing_row_has_the_colours_of_its_tokens() -> None:
    line = Unfinished(CODES)
    line.feed("a\t", 20, A)
    line.feed("日", 20, B)
    assert line.row.plain == "a       日"
    assert {str(span.style) for span in line.row.spans} == {"green", "bold color(172)"}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([None, A, B]), TEXT), max_size=5), WIDTHS)
def test_without_its_colours_the_answer_is_the_same_text(spans: list, width: int) -> None:
    text = "".join(part for _, part in spans)
    assert bare(coloured(spans, width)) == grown([text], width)


@pytest.mark.parametrize(
    ("system", "green", "amber"),
    [
        ("truecolor", "\x1b[32m", "\x1b[1;38;5;172m"),
        ("256", "\x1b[32m", "\x1b[1;38;5;172m"),
        ("standard", "\x1b[32m", "\x1b[1;33m"),
    ],
)
def test_amber_is_bold_on_every_terminal(system: str, green: str, amber: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = codes(Console(file=io.StringIO(), force_terminal=True, color_system=system))
    own = (Fate.CORRECTION, Fate.BONUS, Fate.PLAIN)
    assert made == {A: green, **dict.fromkeys(own, amber)}


def test_no_color_and_a_terminal_without_colours_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(Console(file=io.StringIO(), force_terminal=True, color_system=None)) == {}
    monkeypatch.setenv("NO_COLOR", "1")
    assert codes(Console(file=io.StringIO(), force_terminal=True, color_system="256")) == {}
