"""The server's live panel on a terminal: lines above it, one frame for each change, and a clean terminal after it."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

import pytest

from fakes.desk_status import BUSY, IDLE
from fakes.ui_script import Terminal
from specdec_cli.apps.serve.panel import ServerPanel
from specdec_cli.terminal.panel import status

URL = "http://127.0.0.1:8040"


pytestmark = pytest.mark.slow  # a terminal


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "COLORTERM", "TMUX"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def terminal():
    made = Terminal(80, 24)
    yield made
    made.close()


def shown(terminal):
    """The screen while the panel's thread writes, into whose frames `lines` would write its mark."""
    with terminal._lock:
        return [row.rstrip() for row in terminal.screen.display]


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_scroll_above_one_panel_and_its_sums_stay(terminal):
    with ServerPanel(terminal.err, "demo", URL, lambda: BUSY) as panel:
        for number in range(30):
            panel.say(f"line {number}")
        until(lambda: "line 29" in shown(terminal) and terminal.screen.cursor.hidden)
        until(lambda: any(line.startswith("╰") for line in shown(terminal)))
        lines = shown(terminal)
        place = lines.index("line 29")
        assert lines[place - 1] == "line 28" and lines[place + 1].startswith("╭─ demo") and lines[-1].startswith("╰")
        assert terminal.screen.cursor.hidden
        panel.say("the last one")
    assert terminal.lines()[-2:] == ["the last one", "41 requests, 3 402 tokens generated, 61 % of drafts accepted"]
    assert not terminal.screen.cursor.hidden and not any("╭" in line for line in terminal.lines())
    said = [*terminal.scrolled(), *terminal.lines()]
    assert said[:-2] == [f"line {number}" for number in range(30)]


def test_only_a_change_is_drawn_and_on_one_screen_the_panel_never_shrinks(terminal):
    now = [BUSY]
    panel = ServerPanel(terminal.err, "demo", URL, lambda: now[0])

    def drawn():
        """Bytes that one call of `draw` writes."""
        terminal.settle()
        before = len(terminal.written)
        panel.draw()
        terminal.settle()
        return len(terminal.written) - before

    assert drawn() > 500 and drawn() == 0
    high = len(terminal.lines())
    now[0] = replace(BUSY, running=(), waiting=())
    assert drawn() > 500 and len(terminal.lines()) == high
    terminal.resize(70, 24)
    assert drawn() > 500 and len(terminal.lines()) < high
    panel.say("a line")
    assert drawn() > 0
    panel._region.release("")


def test_ctrl_z_leaves_a_clean_terminal_and_the_panel_comes_back(terminal):
    before = signal.signal(signal.SIGTSTP, lambda number, frame: seen.append(terminal.lines()))
    seen, after = [], []
    try:
        with ServerPanel(terminal.err, "demo", URL, lambda: BUSY) as panel:
            until(lambda: any("╰" in line for line in shown(terminal)))
            panel.say("a line")
            until(lambda: "a line" in shown(terminal))
            signal.raise_signal(signal.SIGTSTP)
            until(lambda: any("╰" in line for line in shown(terminal)))
            after = shown(terminal)
    finally:
        signal.signal(signal.SIGTSTP, before)
    assert seen == [["a line"]]
    assert after[0] == "a line" and sum("╭" in line for line in after) == 1


def test_a_terminal_that_takes_nothing_holds_up_nobody(terminal, monkeypatch):
    monkeypatch.setattr(status, "LEAVING_SECONDS", 0.05)
    stuck, entered = threading.Event(), threading.Event()
    panel = ServerPanel(terminal.err, "demo", URL, lambda: BUSY)

    def draw(*_):
        entered.set()
        stuck.wait(20)

    monkeypatch.setattr(panel._region, "draw", draw)
    with panel:
        assert entered.wait(20)
        began = time.monotonic()
        panel.say("a line")
        assert time.monotonic() - began < 1
        stuck.set()


def test_a_terminal_that_is_gone_ends_the_panel_and_nothing_else(terminal):
    now = [BUSY]
    with ServerPanel(terminal.err, "demo", URL, lambda: now[0]) as panel:
        terminal.err.close()
        now[0] = IDLE
        until(lambda: all(thread.name != "ticks" for thread in threading.enumerate()))
        panel.say("nobody reads it")
