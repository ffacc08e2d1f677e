"""The answer's rows: wrapped, final as soon as they are full, and coloured without a character more."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from specdec_cli.core.fates import Fate
from specdec_cli.terminal.panel.answer import GUESSED, OWN, AnswerRows, folds

A, B = Fate.ACCEPTED, Fate.BONUS
TEXT = st.text(st.sampled_from("ab cd  日本\n\té́👍x"), max_size=80)
WIDTHS = st.integers(8, 30)


def grown(spans: list[tuple[Fate | None, str]], width: int) -> list[Text]:
    """All rows of an answer that arrives in spans."""
    rows = AnswerRows()
    return [row for fate, text in spans for row in rows.feed(text, width, fate)] + rows.finish(width)


def plain(parts: list[str], width: int) -> list[str]:
    return [row.plain for row in grown([(None, part) for part in parts], width)]


@pytest.mark.parametrize(
    ("line", "width", "full", "rest"),
    [
        ("the quick brown fox jumps", 10, ["the quick", "brown fox"], "jumps"),
        ("a incomprehensibly", 6, ["a", "incomp", "rehens"], "ibly"),
        ("abcdef ", 6, [], "abcdef "),
        ("abcdef g", 6, ["abcdef"], "g"),
        ("        word", 10, ["        wo"], "rd"),
        ("日本語日本語", 5, ["日本", "語日"], "本語"),
    ],
)
def test_rows_are_cut_between_words_where_that_is_possible(line: str, width: int, full: list[str], rest: str) -> None:
    rows, place = folds(line, 0, len(line), width)
    assert ([line[start:end] for start, end in rows], line[place:]) == (full, rest)


def test_rows_of_an_answer_are_final_as_soon_as_they_are_full() -> None:
    rows = AnswerRows()
    assert rows.feed("one two", 8) == [] and rows.row.plain == "one two"
    assert [row.plain for row in rows.feed(" three\nfo", 8)] == ["one two", "three"] and rows.row.plain == "fo"
    assert [row.plain for row in rows.finish(8)] == ["fo"] and rows.finish(8) == []


def test_a_tab_reaches_the_next_of_every_eight_columns() -> None:
    assert plain(["a\tb\n\tc\n日\td"], 40) == ["a       b", "        c", "日      d"]


@settings(max_examples=40, deadline=None)
@given(TEXT, st.lists(st.integers(0, 80), max_size=5), WIDTHS)
def test_rows_depend_neither_on_how_the_answer_arrived_nor_on_its_colours(
    text: str, cuts: list[int], width: int
) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[first:last] for first, last in pairwise(places)]
    whole = plain([text], width)
    assert plain(parts, width) == whole
    fates = [A, B, None] * 3
    assert [row.plain for row in grown(list(zip(fates, parts, strict=False)), width)] == whole
    assert all(sum(map(cell_len, row)) <= width for row in whole)
    assert "".join("".join(whole).split()) == "".join(text.split())


def test_each_run_of_tokens_has_the_style_of_its_fate_on_whichever_row_it_is() -> None:
    first, second, third = grown([(A, "one two"), (B, " three"), (None, "?"), (A, " four")], 9)
    assert [row.plain for row in (first, second, third)] == ["one two", "three?", "four"]
    assert [(span.start, span.end, span.style) for span in first.spans] == [(0, 7, GUESSED)]
    assert [(span.start, span.end, span.style) for span in second.spans if span.end > span.start] == [(0, 5, OWN)]
    assert {span.style for span in third.spans} == {GUESSED}
