"""The panel as a function of its state, and a round as a row: what each says, and bounds that hold for all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.ui_script import GAIN, PREFILL, ROUNDS, START, drafted, finish, folded, measured
from specdec_cli.core.events import Finish, Reading
from specdec_cli.core.gain import Gain
from specdec_cli.terminal.panel.frame import LOWEST, render
from specdec_cli.terminal.panel.rounds import RoundRows, round_rows
from specdec_cli.terminal.panel.state import KEPT_ROUNDS, PanelState

SMALL = LOWEST - 1


def said(state: PanelState, width: int = 80, height: int = 24) -> str:
    return render(state, width, height).plain


SHARED = replace(START, machine_bytes=(1_200_000_000, 1_200_100_000))
SHORT = finish(plain_step_seconds=None)  # nothing to compare with


def test_nothing_is_claimed_where_nothing_was_measured() -> None:
    shown = said(folded().apply(SHORT))
    assert not any(word in shown for word in ("≈", "×", "faster", "slower"))
    kept = said(folded().apply(replace(SHORT, stats={**SHORT.stats, "estimated_speedup": 1.4})))
    assert kept == shown  # no figure without its interval


def test_a_panel_has_rows_from_its_least_height_on_and_below_that_one_or_none() -> None:
    assert [said(folded(), 80, height).count("\n") > 0 for height in (SMALL, SMALL + 1)] == [False, True]
    assert said(folded(), 80, 2) == ""


@pytest.mark.parametrize(
    ("read", "seconds", "told"),
    [
        (617, 12.0, "617 of 1 234 tokens · 12 s · about 12 s left"),
        (123, 30.0, "123 of 1 234 tokens · 30 s · about 5 min left"),
        (617, 0.2, "617 of 1 234 tokens…"),
    ],
)
def test_while_a_prompt_is_read_its_share_the_time_and_the_time_left_are_told(read, seconds, told):
    """`512 of 5 010 tokens` stood still for minutes, with no word on how many."""
    state = PanelState().apply(START, 100.0).apply(Reading("target", read, 1234), 100.0 + seconds)
    assert said(state, 80, SMALL) == f"reading the prompt, {told}"


def test_the_newest_rounds_are_there_as_many_as_leave_half_of_the_screen_to_the_answer() -> None:
    many = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(113)))
    for height in range(8, 30):
        most = min(height // 2 - 3, 6)
        for state in (many, many.apply(finish())):
            rows = said(state, 80, height).split("\n")
            assert [int(row[2:6]) for row in rows if row[2:6].strip().isdigit()] == list(range(114 - most, 114))
            assert len(rows) == most + 4 <= max(height // 2 + 1, 5)
    assert {said(folded(ROUNDS[:count])).count("\n") for count in range(1, 6)} == {9}, "it grows"


pieces = st.text(st.sampled_from("ab 日👍\n\t\x1b\u200d\u0301\ufe0f\u202e(."), max_size=14)
ended = st.sampled_from([None, "stop", "length", "interrupted"])
names = st.sampled_from(["demo", "日本語" * 20, "a\x1b[2Jb\nc"])
gains = st.sampled_from(
    [None, GAIN, Gain(0.8, 0.7, 0.9, 0.7, 0.6, 0.8), Gain(1.02, 0.9, 1.1), Gain(0.5, 0.4, 0.6, 1.4, 1.3, 1.5)]
)


@st.composite
def rounds(draw: st.DrawFn) -> list:
    """Up to six rounds of up to sixteen tokens of any text."""
    made = []
    for index in range(draw(st.integers(0, 6))):
        texts = draw(st.lists(pieces, max_size=16))
        accepted = draw(st.integers(0, len(texts)))
        made.append(drafted(10**index, texts, accepted, draw(pieces), draw(st.sampled_from(["model", "ngram"]))))
    return made


@settings(max_examples=40, deadline=None)
@given(rounds(), st.integers(1, 140), st.integers(1, 30), ended, names, gains, st.sampled_from([START, SHARED]))
def test_no_row_is_too_wide_no_frame_too_tall_and_nothing_acts_on_the_terminal(
    made: list, width: int, height: int, reason: str, name: str, gain: Gain | None, start
) -> None:
    state = folded(measured(tuple(made), gain), start, name)
    if reason:
        state = state.apply(Finish(reason, "", (), "", {}))
    shown = said(state, width, height)
    assert all(cell_len(row) <= width for row in shown.split("\n"))
    assert shown == "" or shown.count("\n") + 1 <= max(1, height - 2)
    assert "\x1b" not in shown
    if width >= 56 and height >= 8:
        assert len({cell_len(row) for row in shown.split("\n")}) == 1


@given(
    st.lists(pieces, max_size=32), st.integers(0, 32), pieces, st.integers(52, 116), st.sampled_from([4, 16, "auto"])
)
def test_a_row_is_as_wide_as_asked_and_keeps_the_count(drafts, accepted, own, width, k):
    accepted = min(accepted, len(drafts))
    (row,) = round_rows([drafted(99_999, drafts, accepted, own, "prediction")], replace(START, k=k), width)
    assert row.cell_len == width and "\x1b" not in row.plain
    assert (f"{accepted} of {len(drafts)}" if drafts else "plain") in row.plain
    whole = RoundRows(replace(START, k=k), width, cut=False).row(drafted(9, drafts, accepted, own))
    assert whole.cell_len >= width and "…" not in whole.plain and " more" not in whole.plain


def test_only_the_rounds_that_are_drawn_are_kept_and_they_are_the_newest_at_any_pace():
    state = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(100)))
    assert [done.round.index for done in state.recent] == list(range(100 - KEPT_ROUNDS, 100))
    assert state.stats.rounds == 100


def test_the_wait_for_the_first_token_says_how_long_it_is():
    """A pass of a large target, or of several machines, takes seconds in which nothing moved."""
    state = replace(PanelState(name="demo").apply(START, 0.0).apply(PREFILL, 9.0), now=12.0)
    assert "read the prompt, first token · 12 s" in render(state, 80, 24).plain
