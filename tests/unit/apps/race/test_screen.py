"""How a race looks: the size of its frame, its lanes' texts, who is ahead, and no codes on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import RAW, lane_steps, scripted
from fakes.ui_script import START
from specdec_cli.apps.race.events import DRAFTED, LANES, PLAIN, LaneStep, RaceStart, RaceState
from specdec_cli.apps.race.screen import GUESSED, OWN, RaceView, frame_rows, headline, live_race, race_display, verdict
from specdec_cli.core.events import Finish, Prefill, Reading
from specdec_cli.terminal.panel import status

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


def test_a_lane_that_waits_says_for_what_how_far_it_is_and_since_when():
    view, begun = RaceView(), replace(START, prompt_tokens=4000)
    plain = [begun, Reading("target", 1024, 4000), Prefill(4000, 0, 52.1)]
    drafted = [*plain, Reading("draft", 512, 4000)]
    events = [RAW, *(LaneStep(name, one, 0.0) for name, some in ((PLAIN, plain), (DRAFTED, drafted)) for one in some)]
    said = []
    for seconds, event in enumerate(events):
        view.apply(event, 10.0 * seconds)
        view.now += 5.0
        said.append(tuple(view.text_rows(name, 39, 1)[0].plain for name in (PLAIN, DRAFTED)))
    reading, read = "reading, 1 024 of 4 000 tokens · 15 s", "read 4 000 tokens in 52.10 s"
    assert said == [
        ("warming up · 5 s", "warming up · 5 s"),
        ("reading, 4 000 tokens · 5 s", "waiting for its turn"),
        (reading, "waiting for its turn"),
        (read, "waiting for its turn"),
        (read, "reading, 4 000 tokens · 5 s"),
        (read, reading),
        (read, read),
        (read, "draft reads, 512 of 4 000 tokens · 15 s"),
    ]


def test_a_long_race_into_a_pipe_has_a_line_at_its_start_and_one_at_its_end(monkeypatch):
    monkeypatch.setattr(status, "PATIENCE_SECONDS", 0.0)
    out, err = io.StringIO(), io.StringIO()
    with race_display(out, err, json=False, quiet=False, plain=False) as show:
        for event in EVENTS:
            show(event)
    assert err.getvalue() == "racing…\nracing: done in 0 s\n"


@pytest.mark.slow
def test_foreign_text_never_reaches_the_terminal_as_codes(terminal):
    start = RaceStart("\x1b[2Jdemo[link=x]", "\x1b]0;t\x07p", True, "m", 0.1)
    foul = ("\x1b]0;owned", "\x07a", "\x9b2J", "b\n")
    with live_race(terminal.out, terminal.err, clock=iter(range(1000)).__next__) as show:
        for event in scripted(foul, start=start):
            show(event)
    assert any("demo[link=x]" in line for line in terminal.lines())
    assert any("␛]0;owned" in line for line in terminal.lines())  # drawn, in the row of its round
    assert not any(code in terminal.written for code in (b"\x1b]", b"\x07", b"\xc2\x9b"))


def test_the_headline_names_who_is_ahead(monkeypatch):
    state = RaceState()
    assert headline(state) == "warming up"
    state.lanes[PLAIN].start = START
    assert headline(state) == "reading the prompt"
    state.lanes[DRAFTED].prefill_seconds = 0.1
    leads = {1.62: "drafted 1.62× ahead", 0.5: "plain 2.00× ahead", 1.01: "neck and neck", None: "off they go"}
    for found, words in leads.items():
        monkeypatch.setattr(RaceState, "lead", found)
        assert headline(state) == words


def test_of_a_race_that_was_interrupted_neither_lane_was_done_first():
    """The bug: ✓ and a full bar for the one that was behind when both were stopped."""
    cut = Finish("interrupted", "", (), "", {})
    begun = [step for name in LANES for step in lane_steps(name, [["a"]] * 8) if not step.done]
    rows = frame_rows(shown([RAW, *begun, *(LaneStep(name, cut, 0.14, True) for name in LANES)]), 80, 24)
    assert not any("tokens" in row.plain and ("✓" in row.plain or "─" not in row.plain) for row in rows[1:3])


def test_passes_are_compared_for_as_many_tokens_only():
    """17 target passes for 39 tokens were compared with the 18 for 18 of a plain lane that was interrupted."""
    *_, told = verdict(done := EVENTS[-1])
    assert told.endswith(f"for {done.tokens[0]} tokens, against {done.passes[0]}")
    cut = verdict(replace(done, reason="interrupted", tokens=(18, 39), passes=(18, 17)))
    assert len(cut) == 2 and not any("pass" in line for line in cut)


@pytest.mark.parametrize("width", [60, 120])
def test_a_lane_s_count_says_of_what_from_sixty_columns_on(width):
    assert all(" 32 tokens " in row.plain for row in frame_rows(shown(EVENTS), width, 30)[1:3])


@pytest.mark.parametrize(("drafter", "named"), [("mtp", "mtp · K auto"), ("auto", "demo · K auto")])
def test_a_race_names_who_drafts_as_the_panel_does(drafter, named):
    start = replace(START, drafter=drafter, k="auto", temperature=0)
    assert named in frame_rows(shown([RAW, LaneStep(DRAFTED, start, 0.0)]), 80, 24)[0].plain
