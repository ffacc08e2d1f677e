"""A lane's text on a terminal: harmless, coloured by its author, folded to its width."""

from __future__ import annotations

from fakes.ui_script import drafted
from specdec_cli.ui.race.frame import GUESSED, OWN, LaneText


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
