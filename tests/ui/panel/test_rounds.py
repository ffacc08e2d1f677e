"""A round as two rows of the panel, and many rounds as a strip."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.text import Text

from fakes.ui_script import ROUNDS, drafted
from specdec_cli.ui.panel.rounds import round_rows, strip


def rows_of(done, width=76, drafter=""):
    return [row.plain.rstrip() for row in round_rows(done, width, drafter)]


def tokens_of(done, width=116):
    """The two rows without label and outcome."""
    return [
        row[9:].split("   ")[0].rstrip() if not row[9:].startswith(" ") else row[9:] for row in rows_of(done, width)
    ]


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
    for width in (116, 76, 56, 36):
        above, below = rows_of(long, width)
        assert "4 of 7" in above and "↳" in below and "→ 5" in below
        assert above.index("✗") == below.index("↳") or width < 50
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


def test_an_accepted_stop_token_leaves_nothing_of_the_target_s_own() -> None:
    done = drafted(1, ["a", "<end>"], 2, "z")
    stopped = replace(done, round=replace(done.round, emitted=done.round.draft))
    assert rows_of(stopped)[1].split() == ["target", "–", "1", "pass", "→", "2", "tokens"]


def test_who_drafted_is_named_where_several_may() -> None:
    assert rows_of(ROUNDS[1], 76, "ngram")[0].endswith(" ngram: 4 of 4 accepted")


def many(count: int):
    return tuple(drafted(index, ["a", "b"], index % 3, "c") for index in range(count))


def test_the_strip_grows_to_the_right_and_then_moves_with_its_newest_end_in_place() -> None:
    right = Text("tokens per pass 2.0")
    strips = [strip(many(count), many(count)[-1], right, 76).plain for count in (3, 12, 13, 14)]
    assert strips[0].startswith("rounds   ✗ 1   ✓✗ 2  ▸✓✓ 3   ")
    moving = [row.removesuffix("tokens per pass 2.0").rstrip() for row in strips[1:]]
    assert [row.split("▸")[1] for row in moving] == ["✓✓ 3", "✗ 1", "✓✗ 2"]
    assert {len(row) for row in moving} == {76 - 19 - 2}


def test_the_round_that_is_drawn_above_is_marked_in_the_strip() -> None:
    rounds = many(6)
    assert strip(rounds, rounds[3], Text(), 76).plain.rstrip() == "rounds   ✗ 1   ✓✗ 2   ✓✓ 3  ▸✗ 1   ✓✗ 2   ✓✓ 3"


def test_rounds_without_a_draft_that_follow_one_another_are_one_entry() -> None:
    plain = tuple(drafted(index, [], 0, "x") for index in range(5))
    last = drafted(9, ["a"] * 7, 7, "x")
    assert strip((*plain, last), plain[2], Text(), 76).plain.rstrip() == "rounds   ▸– 1 ×5   ✓✓✓✓✓… 8"
