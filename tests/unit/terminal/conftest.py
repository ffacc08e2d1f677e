"""What every test of a screen finds, and what it leaves behind."""

from __future__ import annotations

import pytest

from specdec_cli.terminal.suspension import held


@pytest.fixture(autouse=True)
def _nothing_is_held():
    """A display that a test leaves open would keep the signals' handlers, for whichever test comes next."""
    yield
    for one in list(held):
        one.release()


@pytest.fixture(autouse=True)
def _an_able_terminal(monkeypatch):
    """Of 80 columns where a stream does not know how many it has."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "LINES", "COLORTERM", "XTERM_VERSION", "TMUX"):
        monkeypatch.delenv(name, raising=False)
