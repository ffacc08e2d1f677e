"""The server's live panel on a terminal: lines above it, one frame for each change, and a clean terminal after it."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

import pytest

from fakes.desk_status import BUSY, IDLE
from fakes.ui_script import Terminal
from specdec_cli.ui.serve import panel as module
from specdec_cli.ui.serve.panel import ServerPanel

URL = "http://127.0.0.1:8040"


pytestmark = pytest.mark.slow  # a terminal


class Desk:
    """Says what it is told to say."""

    def __init__(self, status=BUSY):
        self.now = status

    def status(self):
        return self.now


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
    with ServerPanel(terminal.err, "demo", URL, Desk()) as panel:
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


@pytest.fixture
def still(terminal):
    """Makes panels that nobody draws but the test."""
    made = []

    def make(desk, clock):
        made.append(ServerPanel(terminal.err, "demo", URL, desk, clock=clock))
        return made[-1]

    yield make
    for panel in made:
        panel._region.release("")


def drawn_by(terminal, panel):
    """Bytes that one call of `draw` writes."""
    terminal.settle()
    before = len(terminal.written)
    panel.draw()
    terminal.settle()
    return len(terminal.written) - before


def test_only_a_change_is_drawn(terminal, still):
    desk = Desk()
    panel = still(desk, lambda: 0.0)
    assert drawn_by(terminal, panel) > 500 and drawn_by(terminal, panel) == 0
    desk.now = replace(BUSY, running=tuple(replace(job, seconds=job.seconds + 0.3) for job in BUSY.running))
    assert drawn_by(terminal, panel) == 0
    desk.now = replace(BUSY, running=())
    assert drawn_by(terminal, panel) > 500
    terminal.resize(60, 24)
    assert drawn_by(terminal, panel) > 500
    panel.say("a line")
    assert drawn_by(terminal, panel) > 0


def test_a_panel_that_needs_fewer_rows_shrinks_only_after_a_while(terminal, still):
    desk, now = Desk(), [0.0]
    panel = still(desk, lambda: now[0])
    panel.draw()
    high = len(terminal.lines())
    desk.now = replace(BUSY, running=())
    panel.draw()
    assert len(terminal.lines()) == high
    now[0] = module.SETTLING_SECONDS
    panel.draw()
    assert len(terminal.lines()) == high - 3


def test_ctrl_z_leaves_a_clean_terminal_and_the_panel_comes_back(terminal):
    before = signal.signal(signal.SIGTSTP, lambda number, frame: seen.append(terminal.lines()))
    seen, after = [], []
    try:
        with ServerPanel(terminal.err, "demo", URL, Desk()) as panel:
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
    monkeypatch.setattr(module, "LEAVING_SECONDS", 0.05)
    stuck, entered = threading.Event(), threading.Event()
    panel = ServerPanel(terminal.err, "demo", URL, Desk())

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
    desk = Desk()
    with ServerPanel(terminal.err, "demo", URL, desk) as panel:
        terminal.err.close()
        desk.now = IDLE
        panel._thread.join(20)
        assert not panel._thread.is_alive()
        panel.say("nobody reads it")
