"""How a race looks: the size of its frame, its lanes' texts, its words; on a terminal, in lines, as JSON."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import lane_steps, scripted
from specdec_cli.apps.race.events import DRAFTED, PLAIN, LaneSeconds, RaceFinish, RaceStart, RaceState
from specdec_cli.apps.race.screen import GUESSED, OWN, LiveRace, RaceView, frame_rows, headline, race_display, verdict
from specdec_cli.measure.divergence import Divergence, Token

EVENTS = scripted(("def", "日本 ", " x\n", "    return"))


def shown(events, upto=None):
    view = RaceView()
    for event in events[:upto]:
        view.apply(event)
    return view


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, len(EVENTS)))
def test_no_row_is_too_wide_and_no_frame_too_tall(width, height, upto):
    rows = frame_rows(shown(EVENTS, upto), width, height)
    assert len(rows) <= max(height - 2, 0)
    assert all(row.cell_len <= width and "\n" not in row.plain for row in rows)
    assert len(rows) == len(frame_rows(shown(EVENTS, 1), width, height)), "its height never changes"


ROUNDS_80 = """\
├─ ✓ accepted   ✗ rejected   · not judged   ↳ correction   ★ bonus ────────────┤
│   6  ✓def ✓日本␣ ✓␣x↵                       ★ ␣␣␣␣return      3 of 3   12 ms │
│   7  ✓def ✓日本␣ ✓␣x↵                       ★ ␣␣␣␣return      3 of 3   12 ms │
│   8  ✓def ✓日本␣ ✓␣x↵                       ★ ␣␣␣␣return      3 of 3   12 ms │
├─ plain decoding ─────────────────────┬─ drafted · guessed · target's own ────┤""".splitlines()


def test_a_higher_frame_has_the_drafted_lane_s_newest_rounds_as_the_panel_draws_them():
    assert [row.plain for row in frame_rows(shown(EVENTS), 80, 24)][3:8] == ROUNDS_80
    upto = next(at for at, event in enumerate(EVENTS) if getattr(event, "lane", "") == DRAFTED) + 4
    early = [row.plain for row in frame_rows(shown(EVENTS, upto), 80, 24)]
    assert early[4].startswith("│   1  ✓def ") and early[5].startswith("│   2  ✓def ") and not early[6].strip("│ ")


def fed(*rounds, prompt="", width=20, height=4):
    """The drafted lane's rows after rounds of pieces, the last of each the target's own."""
    events = [RaceStart("demo", prompt, bool(prompt), "m", 0.1), *lane_steps(DRAFTED, rounds)]
    return shown([*events, *lane_steps(PLAIN, rounds)]).text_rows(DRAFTED, width, height)


def joined(row, style):
    return "".join(row.plain[span.start : span.end] for span in row.spans if str(span.style) == style)


def test_what_the_draft_guessed_and_what_the_target_wrote_differ_without_colour():
    (row,) = fed(("ab", "cd", "ef"), prompt="say ")
    assert (joined(row, "dim"), joined(row, GUESSED), joined(row, OWN)) == ("say ", "abcd", "ef")
    assert "bold" in OWN and "bold" not in GUESSED


def test_the_last_rows_are_kept_and_folded_at_words_and_wide_characters_fit():
    rows = fed(("one two three four\nfive", " six\nseven"), width=9, height=3)
    assert [row.plain for row in rows] == ["four", "five six", "seven"]
    wide = fed(("日本語" * 30, "x" * 50), width=10, height=5)
    assert len(wide) == 5 and all(row.cell_len <= 10 for row in wide)


# Words


def finished(speedup, low, high):
    return RaceFinish("done", (100, 100), (100, 41), LaneSeconds(100, 1.96, 1.21, speedup, low, high))


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
def test_a_verdict_says_no_more_than_its_interval_with_times_and_passes(speedup, low, high, words):
    assert verdict(finished(speedup, low, high)) == [
        "same text ✓",
        f"{words}: 1.21 s instead of 1.96 s",
        "41 target passes for 100 tokens, against 100",
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            Divergence(56, Token(13, " b\x1b"), Token(12, " a"), 0.0123, 0.031),
            "a near-tie: token 57 is ␣a (12), in plain decoding ␣b␛ (13), gap 0.012 ≤ 0.031",
        ),
        (
            Divergence(3, Token(13, "b"), Token(12, "a"), 5.0, 0.031),
            "more than a near-tie: token 4 is a (12), in plain decoding b (13), gap 5 > 0.031",
        ),
        (
            Divergence(3, Token(13, "b"), None, math.inf, 0.0),
            "the texts differ: token 4 is nothing, in plain decoding b (13), and no rounding does that",
        ),
    ],
)
def test_a_difference_is_named_with_both_tokens_and_its_gap(found, words):
    finish = RaceFinish("done", (60, 60), (60, 20), LaneSeconds(40, 1.0, 0.5, 2.0, 1.8, 2.2), found)
    said = verdict(finish)
    assert said[0] == words and finish.lossless == found.near_tie
    assert said[1].endswith("instead of 1.00 s for the first 40 tokens")


# Displays


def play(display, events):
    for event in events:
        display.handle(event)
    display.close()


@pytest.mark.slow
def test_foreign_text_never_reaches_the_terminal_as_codes(terminal):
    start = RaceStart("\x1b[2Jdemo[link=x]", "\x1b]0;t\x07p", True, "m", 0.1)
    foul = ("\x1b]0;owned", "\x07a", "\x9b2J", "b\n")
    play(LiveRace(terminal.out, terminal.err, clock=iter(range(1000)).__next__), scripted(foul, start=start))
    assert any("demo[link=x]" in line for line in terminal.lines())
    assert any("␛]0;owned" in line for line in terminal.lines())  # drawn, in the row of its round
    assert not any(code in terminal.written for code in (b"\x1b]", b"\x07", b"\xc2\x9b"))


def test_in_a_pipe_there_are_lines_without_control_codes():
    out, err = io.StringIO(), io.StringIO()
    with race_display(out, err, json=False, quiet=False, plain=True) as show:
        for event in scripted():
            show(event)
    assert err.getvalue() == "" and out.getvalue() == (
        " a b c\n" * 8
        + "\ndemo · K 4\n"
        + "plain    32 tokens in 32 target passes, 0.64 s, 50 tok/s; prompt 0.40 s\n"
        + "drafted  32 tokens in 8 target passes, 0.32 s, 100 tok/s; prompt 0.40 s\n"
        + "same text ✓\n"
        + "not enough rounds to compare: 0.32 s instead of 0.64 s\n"
        + "8 target passes for 32 tokens, against 32\n"
    )


def test_the_headline_names_who_is_ahead(monkeypatch):
    state = RaceState()
    assert headline(state) == "reading the prompt"
    state.lanes[DRAFTED].prefill_seconds = 0.1
    leads = {1.62: "drafted 1.62× ahead", 0.5: "plain 2.00× ahead", 1.01: "neck and neck", None: "off they go"}
    for found, words in leads.items():
        monkeypatch.setattr(RaceState, "lead", found)
        assert headline(state) == words
