"""How a race looks: the size of its frame, its lanes' texts, who is ahead, and no codes on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.racing import lane_steps, scripted
from specdec_cli.apps.race.events import DRAFTED, PLAIN, RaceStart, RaceState
from specdec_cli.apps.race.screen import GUESSED, OWN, LiveRace, RaceView, frame_rows, headline

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


def test_the_headline_names_who_is_ahead(monkeypatch):
    state = RaceState()
    assert headline(state) == "reading the prompt"
    state.lanes[DRAFTED].prefill_seconds = 0.1
    leads = {1.62: "drafted 1.62× ahead", 0.5: "plain 2.00× ahead", 1.01: "neck and neck", None: "off they go"}
    for found, words in leads.items():
        monkeypatch.setattr(RaceState, "lead", found)
        assert headline(state) == words
