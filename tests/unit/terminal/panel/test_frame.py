"""The panel as a function of its state, and a round as a row: some whole, what each says, bounds that hold for all."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fakes.ui_script import ROUNDS, START, drafted, finish, folded
from specdec_cli.core.events import Finish, Reading, RoundDone
from specdec_cli.core.gain import Gain
from specdec_cli.core.kinds import FORCED
from specdec_cli.core.stats import Stats
from specdec_cli.terminal.display import Look, open_display
from specdec_cli.terminal.panel.frame import LOWEST, render
from specdec_cli.terminal.panel.rounds import RoundRows, round_rows
from specdec_cli.terminal.panel.state import KEPT_ROUNDS, PanelState

GAIN = Gain(1.4, 1.12, 1.71, 0.35, 0.3, 0.42)
SMALL = LOWEST - 1
WHY = "parked: 1.2 tokens a round, in the time of 1.6 plain ones"

RUNNING_80 = """\
╭─ demo · K 4 · round 4 ──────────────────────────── 1.40× faster (1.12–1.71) ─╮
│   1                                         – def              plain  9.4 ms │
│   2  ✓␣read ✓_lines ✓( ✓path                ★ ):              4 of 4   12 ms │
│   3  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J               ↳ ⇥open           2 of 4   12 ms │
│   4  ✓( ✓path ✓) ✗↵                         ↳ ␣as             3 of 4   12 ms │
│                                                                              │
│                                                                              │
├──────────────────────────────────────────────────────────────────────────────┤
│ accepted 75 % of drafted · by position 100 100 67 33 %             348 tok/s │
╰─ ✓ accepted   ✗ rejected   · not judged   ↳ correction   ★ bonus ────────────╯"""

PLAIN_60 = """\
╭─ demo · plain decoding · 1 token in 1 pass ──────────────╮
│   1                           – def        plain  9.4 ms │
├──────────────────────────────────────────────────────────┤
│ plain decoding: one token per pass               – tok/s │
╰─ – plain ────────────────────────────────────────────────╯"""

UNDRAFTED_80 = """\
╭─ demo · K auto · 5 tokens in 5 passes ───────────────────────────────────────╮
│   1                                         – x                plain  9.4 ms │
│   2                                         – x                plain  9.4 ms │
│   3                                         – x                plain  9.4 ms │
│   4                                         – x                plain  9.4 ms │
│   5                                         – x                plain  9.4 ms │
├─ parked: 1.2 tokens a round, in the time of 1.6 plain ones ──────────────────┤
│ nothing was drafted                                                106 tok/s │
╰─ ✓ accepted   ✗ rejected   · not judged   ↳ correction   ★ bonus ────────────╯"""


def measured(rounds: tuple[RoundDone, ...], gain: Gain | None = GAIN) -> tuple[RoundDone, ...]:
    """The rounds, each with what drafting gained so far."""
    return tuple(replace(done, gain=gain) for done in rounds)


def said(state: PanelState, width: int = 80, height: int = 24) -> str:
    return render(state, width, height).plain


def undrafted() -> PanelState:
    plain = (replace(done, round=replace(done.round, why=WHY)) for done in [drafted(n, [], 0, "x") for n in range(5)])
    return folded(tuple(plain), replace(START, k="auto"))


def test_a_running_panel_shows_its_newest_rounds_a_row_each_and_the_verdict() -> None:
    assert said(folded(measured(ROUNDS[:4]))) == RUNNING_80


def test_plain_decoding_shows_the_target_s_words_alone() -> None:
    state = folded((ROUNDS[0],), replace(START, k=0, drafter="none", draft=None))
    assert said(state.apply(Finish("stop", "def", (), "", {})), 60) == PLAIN_60


def test_an_adaptive_reply_that_never_drafted_says_why() -> None:
    assert said(undrafted().apply(Finish("stop", "x", (), "", {}))) == UNDRAFTED_80


LOOKED_UP = (drafted(3, ["a"], 1, "b", "ngram"),)
SHAPED = (drafted(0, [], 0, "{"), drafted(1, ["ada", "x"], 1, '", '), drafted(2, ['"', "a"], 2, ' "', FORCED.name))
SHARED = replace(START, machine_bytes=(1_200_000_000, 1_200_100_000))
SHORT = finish(plain_step_seconds=None)  # nothing to compare with
LONG = replace(SHORT, stats={**SHORT.stats, "rounds": 40})
# What stands in the frame of 80 columns, by state.
WORDS = {
    "nothing came": (
        PanelState().apply(START).apply(Finish("interrupted", "", (), "", Stats().to_dict())),
        ["│ nothing was generated  "],
    ),
    "a loss": (
        folded(measured(ROUNDS, Gain(0.82, 0.7, 0.9, 0.71, 0.66, 0.78))),
        [" slower, 0.82× (0.70–0.90) ─╮"],
    ),
    "too few rounds": (folded().apply(SHORT), [" not enough rounds to compare ─╮"]),
    "many rounds without a figure": (folded().apply(LONG), [" cannot tell yet ─╮"]),
    "running": (folded(), [" cannot tell yet ─╮"]),
    "running without a draft": (
        undrafted(),
        ["╭─ demo · K auto · round 5 ─", f"├─ {WHY} ─", "nothing was drafted so far"],
    ),
    "a lookup": (
        folded(LOOKED_UP, replace(START, drafter="ngram")),
        ["╭─ demo · ngram · K 4 · round 4 ─", "│   4  ✓a "],
    ),
    "several drafters": (
        folded(LOOKED_UP, replace(START, drafter="auto", k="auto")),
        ["╭─ demo · K auto · round 4 ─", "│   4  ngram: ✓a "],
    ),
    "a shape": (
        folded(SHAPED, replace(START, constraint="schema")),
        ["╭─ demo · schema · K 4 · round 3 ─", "✓ada ✗x ", 'grammar: ✓" ✓a '],
    ),
    "several machines": (folded(ROUNDS, SHARED), ["╭─ demo · 2 machines · K 4 ", " 1.2 GB on each ─╯"]),
}


@pytest.mark.parametrize("state", WORDS)
def test_a_state_is_told(state: str) -> None:
    shown = said(WORDS[state][0])
    assert all(words in shown for words in WORDS[state][1]), shown


def test_nothing_is_claimed_where_nothing_was_measured() -> None:
    shown = said(folded().apply(SHORT))
    assert not any(word in shown for word in ("≈", "×", "faster", "slower"))
    kept = said(folded().apply(replace(SHORT, stats={**SHORT.stats, "estimated_speedup": 1.4})))
    assert kept == shown  # no figure without its interval


def test_a_small_panel_is_one_line_and_a_tiny_terminal_gets_that_or_nothing() -> None:
    state = folded(measured(ROUNDS))
    assert [said(state, width, SMALL) for width in (80, 60, 50, 36)] == [
        "demo · K 4 · round 5 · 64 % accepted · 283 tok/s ────── 1.40× faster (1.12–1.71)",
        "demo · 64 % accepted · 283 tok/s ── 1.40× faster (1.12–1.71)",
        "demo · 283 tok/s ──────── 1.40× faster (1.12–1.71)",
        "283 tok/s · 64 % accepted",
    ]
    assert "\n" in said(state, 80, SMALL + 1) and (said(state, 6), said(state, 80, 2)) == ("283 t…", "")


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


EVERY_FATE = """\
  1                                           – def                plain  9.4 ms
  2  ✓␣read ✓_lines ✓( ✓path                  ★ ):                4 of 4   12 ms
  3  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J                 ↳ ⇥open             2 of 4   12 ms
  4  ✓( ✓path ✓) ✗↵                           ↳ ␣as               3 of 4   12 ms
  5  ✗␣f ·:                                   ↳ ␣handle           0 of 2   12 ms
""".splitlines()


def lines(*rounds, start=START):
    """What `--rounds` prints of them into a pipe."""
    err = io.StringIO()
    with open_display(io.StringIO(), err, Look(rounds=True), "demo") as display:
        for event in (start, *rounds):
            display.handle(event)
    return err.getvalue().splitlines()


def rows_of(done, width=76, start=START):
    (row,) = round_rows([done], start, width)
    return row.plain.rstrip()


def test_a_row_has_every_fate_the_target_s_own_token_the_count_and_the_time():
    assert lines(*ROUNDS) == EVERY_FATE


def test_a_draft_that_does_not_fit_loses_the_ends_of_long_words_then_the_discarded_then_the_first_accepted():
    words = [" accepted", " words", " without", " end", " rejected", " lost", " too", " and", " gone"]
    long = drafted(7, words, 4, " corrected")
    rows = {width: rows_of(long, width, replace(START, k="auto")) for width in (116, 76, 56)}
    assert rows == {
        116: "  8  ✓␣accept… ✓␣words ✓␣without ✓␣end ✗␣reject… ·␣lost ·␣too ·␣and ·␣gone ↳ ␣corrected"
        "               4 of 9   12 ms",
        76: "  8  ✓␣ac… ✓␣wo… ✓␣wi… ✓␣end ✗␣re… ·4 more  ↳ ␣corrected      4 of 9   12 ms",
        56: "  8  ✓4 more ✗␣reje… ·4 more  ↳ ␣corre…   4 of 9   12 ms",
    }


def test_a_drafter_is_named_where_it_changes_and_a_plain_round_changes_none():
    auto = replace(START, drafter="auto", k="auto")
    rounds = [
        drafted(0, [], 0, "a", "none"),
        drafted(1, ["b"], 1, "c", "model"),
        drafted(2, ["d"], 1, "e", "model"),
        drafted(3, [], 0, "f", "none"),
        drafted(4, ["g"], 1, "h", "model"),
        drafted(5, ["i"], 0, "j", "ngram"),
    ]
    shown = [line[5:20].rstrip() for line in lines(*rounds, start=auto)]
    assert shown == ["", "model: ✓b", "✓d", "", "✓g", "ngram: ✗i"]
    head = [drafted(1, ["b"], 1, "c", "mtp"), drafted(2, ["d"], 1, "e", "grammar")]
    assert [line[5:20].rstrip() for line in lines(*head, start=replace(START, drafter="mtp"))] == ["✓b", "grammar: ✓d"]


def test_an_accepted_stop_token_ends_the_round_without_a_token_of_the_target_s():
    done = drafted(1, ["a", "<end>"], 2, "z")
    stopped = replace(done, round=replace(done.round, emitted=done.round.draft[:2]))
    (line,) = lines(stopped)
    assert "✓<end>" in line and "ends here" in line and "↳" not in line


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
