"""The display of a race: on a terminal, in lines, as JSON."""

from __future__ import annotations

import io
import json

import pytest

from fakes.racing import scripted
from fakes.ui_script import Terminal
from specdec_cli.race.events import RaceStart
from specdec_cli.ui.race.display import LiveRace, PlainRace, race_display


@pytest.fixture
def terminal():
    made = Terminal(80, 24)
    yield made
    made.close()


def shown(display, events):
    for event in events:
        display.handle(event)
    display.close()


@pytest.mark.slow
def test_on_a_terminal_the_last_frame_stays_and_the_verdict_follows(terminal):
    shown(LiveRace(terminal.out, terminal.err, clock=iter(range(1000)).__next__), scripted())
    lines = terminal.lines()
    assert sum(line.startswith("╭─ race · demo") for line in lines) == 1
    assert lines[-2:] == [
        "same text ✓ · not enough rounds to compare: 0.32 s instead of 0.64 s",
        "8 target passes for 32 tokens, against 32",
    ]
    assert not terminal.screen.cursor.hidden and not terminal.scrolled()


@pytest.mark.slow
def test_a_closed_race_leaves_one_frame_and_the_cursor(terminal):
    shown(LiveRace(terminal.out, terminal.err, clock=iter(range(1000)).__next__), scripted()[:30])
    assert sum(line.startswith("╭─ race · demo") for line in terminal.lines()) == 1
    assert not terminal.screen.cursor.hidden


def test_in_a_pipe_there_are_lines_without_control_codes():
    out, err = io.StringIO(), io.StringIO()
    shown(PlainRace(out, err, quiet=False, plain=True, clock=iter(range(1000)).__next__), scripted())
    assert out.getvalue() == (
        " a b c\n" * 8
        + "\ndemo · K 4\n"
        + "plain    32 tokens in 32 target passes, 0.64 s, 50 tok/s; prompt 0.40 s\n"
        + "drafted  32 tokens in 8 target passes, 0.32 s, 100 tok/s; prompt 0.40 s\n"
        + "same text ✓\n"
        + "not enough rounds to compare: 0.32 s instead of 0.64 s\n"
        + "8 target passes for 32 tokens, against 32\n"
    )
    progress = err.getvalue()
    assert "0.6 s · plain 32 tokens · drafted 32 tokens · drafted 2.00× ahead" in progress
    assert "\x1b" not in progress + out.getvalue()
    assert all(len(line) <= 80 for line in (progress + out.getvalue()).splitlines())


def test_quietly_there_is_no_progress():
    out, err = io.StringIO(), io.StringIO()
    shown(PlainRace(out, err, quiet=True, plain=True, clock=iter(range(1000)).__next__), scripted())
    assert err.getvalue() == "" and "same text" in out.getvalue()


@pytest.mark.slow
def test_foreign_text_never_reaches_the_terminal_as_codes(terminal):
    start = RaceStart("\x1b[2Jdemo[link=x]", "\x1b]0;t\x07p", True, "m", 0.1)
    foul = ("\x1b]0;owned", "\x07a", "\x9b2J", "b\n")
    shown(LiveRace(terminal.out, terminal.err, clock=iter(range(1000)).__next__), scripted(foul, start=start))
    assert any("demo[link=x]" in line for line in terminal.lines())
    assert b"owned" not in terminal.written and b"\x1b]" not in terminal.written


def test_json_is_one_object_a_line():
    out = io.StringIO()
    shown(race_display(out, io.StringIO(), json=True, quiet=False, plain=False), scripted())
    values = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (values[0]["event"], values[-1]["event"]) == ("race", "race_finish")
    assert all("lane" in value for value in values[1:-1])
