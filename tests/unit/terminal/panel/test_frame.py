"""Claims about the picture: whole frames at every size, and bounds that hold at all of them."""

from __future__ import annotations

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
from specdec_cli.terminal.panel.frame import LOWEST, render
from specdec_cli.terminal.panel.state import PanelState

GAIN = Gain(1.4, 1.12, 1.71, 0.35, 0.3, 0.42)
MEASURED = {
    "estimated_speedup": 1.4,
    "estimated_speedup_low": 1.12,
    "estimated_speedup_high": 1.71,
    "break_even_acceptance_rate": 0.35,
    "break_even_acceptance_rate_low": 0.3,
    "break_even_acceptance_rate_high": 0.42,
}

SMALL = LOWEST - 1


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


ENDED_80 = """\
╭─ demo · K 4 · 14 tokens in 5 passes ────────────── 1.40× faster (1.12–1.71) ─╮
│   1                                         – def              plain  9.4 ms │
│   2  ✓␣read ✓_lines ✓( ✓path                ★ ):              4 of 4   12 ms │
│   3  ✓↵␣␣␣␣ ✓with ✗日本 ·␛[2J               ↳ ⇥open           2 of 4   12 ms │
│   4  ✓( ✓path ✓) ✗↵                         ↳ ␣as             3 of 4   12 ms │
│   5  ✗␣f ·:                                 ↳ ␣handle         0 of 2   12 ms │
├──────────────────────────────────────────────────────────────────────────────┤
│ accepted 64 % of drafted · by position 75 75 67 33 %               283 tok/s │
╰─ ✓ accepted   ✗ rejected   · not judged   ↳ correction   ★ bonus ────────────╯"""


ended = st.sampled_from([None, "stop", "length", "interrupted"])
pieces = st.text(st.sampled_from("ab 日👍\n\t\x1b\u200d\u0301\ufe0f\u202e(."), max_size=14)
gains = st.sampled_from(
    [None, GAIN, Gain(0.8, 0.7, 0.9, 0.7, 0.6, 0.8), Gain(1.02, 0.9, 1.1), Gain(0.5, 0.4, 0.6, 1.4, 1.3, 1.5)]
)


def measured(rounds: tuple[RoundDone, ...], gain: Gain | None = GAIN) -> tuple[RoundDone, ...]:
    """The rounds, each with what drafting gained so far."""
    return tuple(replace(done, gain=gain) for done in rounds)


def ending() -> Finish:
    """The end of ROUNDS, with the same gain."""
    return replace(finish(), stats={**finish().stats, **MEASURED})


@st.composite
def rounds(draw: st.DrawFn) -> list:
    """Up to six rounds of up to sixteen tokens of any text."""
    made = []
    for index in range(draw(st.integers(0, 6))):
        texts = draw(st.lists(pieces, max_size=16))
        accepted = draw(st.integers(0, len(texts)))
        made.append(drafted(10**index, texts, accepted, draw(pieces), draw(st.sampled_from(["model", "ngram"]))))
    return made


def test_a_running_panel_shows_its_newest_rounds_a_row_each_and_the_verdict() -> None:
    assert render(folded(measured(ROUNDS[:4])), 80, 24).plain == RUNNING_80


def test_a_finished_panel_keeps_its_last_rounds() -> None:
    assert render(folded(measured(ROUNDS)).apply(ending()), 80, 24).plain == ENDED_80


def numbers(state: PanelState, width: int, height: int) -> list[int]:
    """The rounds that a panel holds."""
    return [int(row[2:6]) for row in render(state, width, height).plain.split("\n") if row[2:6].strip().isdigit()]


def test_the_newest_rounds_are_there_as_many_as_leave_half_of_the_screen_to_the_answer() -> None:
    many = folded(tuple(drafted(index, ["a"], 1, "b") for index in range(113)))
    for height in range(8, 30):
        most = min(height // 2 - 3, 6)
        for state in (many, many.apply(ending())):
            assert numbers(state, 80, height) == list(range(114 - most, 114))
            assert render(state, 80, height).plain.count("\n") + 1 == most + 4 <= max(height // 2 + 1, 5)


def test_a_running_panel_is_as_high_with_its_first_round_as_with_its_sixth() -> None:
    assert {render(folded(ROUNDS[:count]), 80, 24).plain.count("\n") for count in range(1, 6)} == {9}


def test_what_the_figures_lack_room_for_goes_last_position_first() -> None:
    long = folded((drafted(1, ["a"] * 16, 8, "b"),))
    rows = [render(long, width, 24).plain.split("\n")[-2] for width in (120, 80, 60)]
    rows.append(render(folded(ROUNDS[:2]), 60, 24).plain.split("\n")[-2])
    assert [" ".join(row.strip("│").split()) for row in rows] == [
        f"accepted 50 % of drafted · by position {'100 ' * 8}{'0 ' * 8}% – tok/s",
        f"accepted 50 % · by position {'100 ' * 8}{'0 ' * 2}… % – tok/s",
        f"accepted 50 % · by position {'100 ' * 4}… % – tok/s",
        f"accepted 100 % · by position {'100 ' * 4}% 435 tok/s",
    ]


def test_a_reply_that_is_interrupted_before_its_first_token_says_that_nothing_came() -> None:
    """The bug: it asked for the reason of the last round, and there was none."""
    state = PanelState().apply(START).apply(Finish("interrupted", "", (), "", Stats().to_dict()))
    assert render(state, 80, 24).plain.split("\n")[1] == f"│ {'nothing was generated':<76} │"
    assert render(state, 80, SMALL).plain == "nothing was generated"


def test_nothing_is_claimed_where_nothing_was_measured() -> None:
    unknown = finish(plain_step_seconds=None)
    shown = render(folded().apply(unknown), 80, 24).plain
    assert not any(word in shown for word in ("≈", "×", "faster", "slower"))
    kept = render(folded().apply(replace(unknown, stats={**unknown.stats, "estimated_speedup": 1.4})), 80, 24).plain
    assert kept == shown  # no figure without its interval


def test_a_loss_is_said_as_plainly_as_a_gain() -> None:
    shown = render(folded(measured(ROUNDS, Gain(0.82, 0.7, 0.9, 0.71, 0.66, 0.78))), 80, 24).plain
    assert " slower, 0.82× (0.70–0.90) ─╮" in shown


def test_a_reply_too_short_to_compare_says_so_in_its_title_at_the_end() -> None:
    ended = finish(plain_step_seconds=None)
    assert " not enough rounds to compare ─╮" in render(folded().apply(ended), 80, 24).plain
    assert " cannot tell yet ─╮" in render(folded(), 80, 24).plain
    long = replace(ended, stats={**ended.stats, "rounds": 40})
    assert " cannot tell yet ─╮" in render(folded().apply(long), 80, 24).plain


PLAIN_60 = """\
╭─ demo · plain decoding · 1 token in 1 pass ──────────────╮
│   1                           – def        plain  9.4 ms │
├──────────────────────────────────────────────────────────┤
│ plain decoding: one token per pass               – tok/s │
╰─ – plain ────────────────────────────────────────────────╯"""


def test_plain_decoding_shows_the_target_s_words_alone() -> None:
    state = folded((ROUNDS[0],), replace(START, k=0, drafter="none", draft=None))
    assert render(state.apply(Finish("stop", "def", (), "", {})), 60, 24).plain == PLAIN_60
    assert render(state, 60, 24).plain.startswith("╭─ demo · plain decoding · round 1 ──")


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


def test_an_adaptive_reply_that_never_drafted_says_why() -> None:
    why = "parked: 1.2 tokens a round, in the time of 1.6 plain ones"
    plain = tuple(drafted(index, [], 0, "x") for index in range(5))
    plain = tuple(replace(done, round=replace(done.round, why=why)) for done in plain)
    state = folded(plain, replace(START, k="auto"))
    assert render(state.apply(Finish("stop", "x", (), "", {})), 80, 24).plain == UNDRAFTED_80
    running = render(state, 80, 24).plain
    assert running.startswith("╭─ demo · K auto · round 5 ─") and f"├─ {why} ─" in running
    assert "nothing was drafted so far" in running and why not in render(folded(plain), 80, 24).plain


def test_a_lookup_is_named_in_the_title_and_several_drafters_in_their_rows() -> None:
    done = drafted(3, ["a"], 1, "b", "ngram")
    rows = render(folded((done,), replace(START, drafter="auto", k="auto")), 80, 24).plain.splitlines()
    assert rows[0].startswith("╭─ demo · K auto · round 4 ─") and rows[1].startswith("│   4  ngram: ✓a ")
    rows = render(folded((done,), replace(START, drafter="ngram")), 80, 24).plain.splitlines()
    assert rows[0].startswith("╭─ demo · ngram · K 4 · round 4 ─") and rows[1].startswith("│   4  ✓a ")


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
    assert render(state, 80, SMALL).plain == f"reading the prompt, {told}"


@pytest.mark.parametrize("drafter", ["model", "none"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_several_machines_are_in_the_title_and_what_each_holds_below(width, drafter) -> None:
    start = replace(START, drafter=drafter, machine_bytes=(1_200_000_000, 1_200_100_000))
    how = "K 4" if drafter == "model" else "plain decoding"
    for state in (PanelState(name="demo").apply(start), folded(ROUNDS, start)):
        rows = render(state, width, 24).plain.splitlines()
        narrow = width == 60 and state.recent  # there the round and the verdict come first, and what the marks mean
        assert rows[0].startswith(f"╭─ demo · 2 machines · {'round 5' if narrow and drafter == 'none' else how} ")
        assert rows[-1].endswith(" 1.2 GB on each ─╯") or (narrow and drafter == "model")
    assert render(state, 120, SMALL).plain.startswith(f"demo · 2 machines · {how} · round 5 ")


def test_a_small_panel_is_one_line() -> None:
    state = folded(measured(ROUNDS))
    lines = [render(state, width, SMALL).plain for width in (80, 60, 50, 36)]
    assert lines == [
        "demo · K 4 · round 5 · 64 % accepted · 283 tok/s ────── 1.40× faster (1.12–1.71)",
        "demo · 64 % accepted · 283 tok/s ── 1.40× faster (1.12–1.71)",
        "demo · 283 tok/s ──────── 1.40× faster (1.12–1.71)",
        "283 tok/s · 64 % accepted",
    ]
    unknown = render(folded(ROUNDS), 80, SMALL).plain
    assert unknown == "demo · K 4 · round 5 · 64 % accepted · 283 tok/s ─────────────── cannot tell yet"
    assert render(PanelState().apply(START), 80, SMALL).plain == "reading the prompt, 1 234 tokens…"
    assert render(state.apply(ending()), 80, SMALL).plain == (
        "demo · 64 % accepted · 283 tok/s ────────────────────── 1.40× faster (1.12–1.71)"
    )


def test_a_tiny_terminal_gets_that_line_or_nothing() -> None:
    state = folded(measured(ROUNDS))
    assert "\n" in render(state, 80, SMALL + 1).plain and "\n" not in render(state, 80, SMALL).plain
    assert render(state, 6, 24).plain == "283 t…"
    assert render(state, 80, 2).plain == ""


@settings(max_examples=40, deadline=None)
@given(
    rounds(),
    st.integers(1, 140),
    st.integers(1, 30),
    ended,
    st.sampled_from(["demo", "日本語" * 20, "a\x1b[2Jb\nc"]),
    gains,
)
def test_no_row_is_too_wide_and_no_frame_too_tall(
    made: list, width: int, height: int, reason: str, name: str, gain: Gain | None
) -> None:
    state = folded(measured(tuple(made), gain), name=name)
    if reason:
        state = state.apply(Finish(reason, "", (), "", {}))
    shown = render(state, width, height).plain
    assert all(cell_len(row) <= width for row in shown.split("\n"))
    assert shown == "" or shown.count("\n") + 1 <= max(1, height - 2)
    assert "\x1b" not in shown
    if width >= 56 and height >= 8:
        assert len({cell_len(row) for row in shown.split("\n")}) == 1


def test_under_a_shape_a_row_names_who_drafted_where_that_changes():
    rounds = (
        drafted(0, [], 0, "{"),
        drafted(1, ["ada", "x"], 1, '", '),
        drafted(2, ['"', "name", '":'], 3, ' "', FORCED.name),
    )
    rows = render(folded(rounds, replace(START, constraint="schema")), 80, 24).plain.splitlines()
    assert rows[0].startswith("╭─ demo · schema · K 4 · round 3 ─")
    assert [row[7:38].rstrip() for row in rows[2:4]] == ["✓ada ✗x", 'grammar: ✓" ✓name ✓":']
