"""Claims about the picture: whole frames, and bounds that hold at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.ui_script import ROUNDS, START, drafted, finish, folded
from specdec_cli.events import Finish
from specdec_cli.ui.panel.frame import render
from specdec_cli.ui.panel.state import PanelState

RUNNING = """\
╭─ demo · K 4 · coupled ───────────── 5 target passes for 14 tokens · 9 saved ─╮
│  4  ✗␣f ·: ➜␣handle                                    0 of 2 · 2.1 + 9.4 ms │
│  3  ✓( ✓path ✓) ✗↵ ➜␣as                                3 of 4 · 2.1 + 9.4 ms │
│  2  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J ➜⇥open                    2 of 4 · 2.1 + 9.4 ms │
│  1  ✓␣read ✓_lines ✓( ✓path ★):                        4 of 4 · 2.1 + 9.4 ms │
│ accepted     64 % of drafted   ━━━━━━╋━╸╌┼──  usual 50–80 %   75 % of judged │
│ by position  1 ▇ 75 %   2 ▇ 75 %   3 ▆ 67 %   4 ▃ 33 %   2.8 tokens per pass │
│ time spent   draft 15 % ━━━━──────────────────── verify 85 %       283 tok/s │
│ ✓ accepted   ✗ rejected   · discarded   ➜ target's own   ★ bonus             │
╰──────────────────────────────────────────────────────────────────────────────╯"""


BEGUN = """\
╭─ demo · K 4 · coupled ─────────────────────────── 1 target pass for 1 token ─╮
│  0  ➜def                                                      plain · 9.4 ms │
│                                                                              │
│                                                                              │
│                                                                              │
│ accepted     – of drafted      ──────┼╌╌╌┼──  usual 50–80 %      – of judged │
│ by position                                              1.0 tokens per pass │
│ one target pass per token                                            – tok/s │
│ ✓ accepted   ✗ rejected   · discarded   ➜ target's own   ★ bonus             │
╰──────────────────────────────────────────────────────────────────────────────╯"""


WAITING = """\
╭─ Target-1B · K 4 · coupled ──────────────────────────────────────────────────╮
│ reading the prompt, 1 234 tokens…                                            │
╰──────────────────────────────────────────────────────────────────────────────╯"""


ended = st.sampled_from([None, "stop", "length", "interrupted"])


pieces = st.text(st.sampled_from("ab 日👍\n\t\x1b\u200d\u0301\ufe0f\u202e(."), max_size=14)


@st.composite
def rounds(draw: st.DrawFn) -> list:
    """Up to six rounds of up to sixteen tokens of any text."""
    made = []
    for index in range(draw(st.integers(0, 6))):
        texts = draw(st.lists(pieces, max_size=16))
        accepted = draw(st.integers(0, len(texts)))
        made.append(drafted(10**index, texts, accepted, draw(pieces), draw(st.sampled_from(["model", "ngram"]))))
    return made


def test_a_running_panel_shows_every_fate_and_every_figure() -> None:
    assert render(folded(), 80, 24).plain == RUNNING


def test_a_first_round_keeps_the_height_of_the_full_panel() -> None:
    assert render(folded(ROUNDS[:1]), 80, 24).plain == BEGUN


def test_the_prompt_being_read_is_said() -> None:
    assert render(PanelState().apply(START), 80, 24).plain == WAITING


def test_a_finished_panel_says_how_it_compares_with_plain_decoding() -> None:
    shown = render(folded().apply(finish()), 80, 24).plain.splitlines()
    running = RUNNING.splitlines()
    time_spent = "│ time spent   draft 15 % ━━───────────── verify 85 %  283 tok/s · 3.39× plain │"
    assert shown == [*running[:7], time_spent, *running[8:]]


def test_a_finished_panel_has_no_blank_rows() -> None:
    shown = render(folded(ROUNDS[:1]).apply(Finish("stop", "def", (), "", {})), 80, 24).plain.splitlines()
    assert shown == [row for row in BEGUN.splitlines() if row.strip("│ ")]


def test_plain_decoding_shows_no_acceptance() -> None:
    start = replace(START, k=0, drafter="none", draft=None)
    assert render(folded((ROUNDS[0],), start), 60, 24).plain.splitlines() == [
        "╭─ demo · plain decoding ────── 1 target pass for 1 token ─╮",
        "│  0  ➜def                                  plain · 9.4 ms │",
        *["│                                                          │"] * 3,
        "│ one target pass per token                        – tok/s │",
        "╰──────────────────────────────────────────────────────────╯",
    ]


@pytest.mark.parametrize(
    ("height", "rows"),
    [(24, 10), (12, 10), (11, 9), (10, 8), (9, 7), (8, 6), (7, 1), (3, 1)],
)
def test_a_low_terminal_loses_history_then_the_legend_then_the_positions(height: int, rows: int) -> None:
    shown = render(folded(), 80, height).plain
    assert shown.count("\n") + 1 == rows
    assert ("1 ▇ 75" in shown) == (height >= 8)
    assert ("★ bonus" in shown) == (height >= 10)
    assert ("0 of 2" in shown) == (height >= 8)


def test_a_tiny_terminal_gets_one_line() -> None:
    assert render(folded(), 80, 7).plain == "283 tok/s · 64 % accepted · 14 tokens in 5 passes"
    assert render(folded(), 30, 24).plain == "283 tok/s · 64 % accepted"
    assert render(folded(), 6, 24).plain == "283 t…"
    assert render(folded(), 80, 2).plain == ""


@settings(max_examples=150, deadline=None)
@given(
    rounds(), st.integers(1, 140), st.integers(1, 30), ended, st.sampled_from(["demo", "日本語" * 20, "a\x1b[2Jb\nc"])
)
def test_no_row_is_too_wide_and_no_frame_too_tall(made: list, width: int, height: int, reason: str, name: str) -> None:
    state = folded(tuple(made), name=name)
    if reason:
        state = state.apply(Finish(reason, "", (), "", {}))
    shown = render(state, width, height).plain
    assert all(cell_len(row) <= width for row in shown.split("\n"))
    assert shown == "" or shown.count("\n") + 1 <= max(1, height - 2)
    assert "\x1b" not in shown
    if width >= 36 and height >= 8:
        assert len({cell_len(row) for row in shown.split("\n")}) == 1


def test_several_drafters_are_named_round_by_round() -> None:
    state = folded((drafted(3, ["a"], 1, "b", "ngram"),), replace(START, drafter="auto"))
    rows = render(state, 80, 24).plain.splitlines()
    assert rows[0].startswith("╭─ demo · auto · K 4 · coupled ─")
    assert rows[1].endswith(" ngram · 1 of 1 · 2.1 + 9.4 ms │")


def test_an_adaptive_k_is_shown_over_the_rounds_with_its_reason() -> None:
    why = "parked: 1.2 tokens a round cost 1.6 plain steps"
    plain = drafted(5, [], 0, "x")
    plain = replace(plain, round=replace(plain.round, why=why))
    for width in (80, 120):
        state = folded((*ROUNDS, plain), replace(START, k="auto"))
        rows = render(state, width, 40).plain.splitlines()
        row = next(row for row in rows if "K by round" in row)
        assert why in row and "▄▄▄▂·" in row, rows
    assert "K by round" not in render(folded(), 80, 40).plain
    assert "▂·" in render(state, 40, 40).plain  # no room for label or reason
