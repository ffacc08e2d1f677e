"""Keys typed while something is drawn, on a terminal of this process's own."""

from __future__ import annotations

import io
import os
import termios

import pytest

from fakes.ui_script import Terminal
from specdec_cli.ui.suspension import no_echo

pytestmark = pytest.mark.slow  # a pseudo-terminal for each


@pytest.fixture
def terminal():
    terminal = Terminal(80, 24)
    yield terminal
    terminal.close()


def settings(terminal) -> list:
    return termios.tcgetattr(terminal.out.fileno())


def test_nothing_is_echoed_meanwhile_and_the_terminal_comes_back_as_it_was(terminal):
    before = settings(terminal)
    with no_echo(terminal.out):
        assert not settings(terminal)[3] & termios.ECHO and settings(terminal)[3] & termios.ISIG
        assert settings(terminal)[3] & termios.ICANON
    assert settings(terminal) == before


def test_an_editor_gets_every_key_and_marked_pastes_and_the_shell_bare_ones(terminal):
    before = settings(terminal)
    with no_echo(terminal.out, terminal.err.fileno()):
        assert not settings(terminal)[3] & termios.ICANON and not settings(terminal)[0] & termios.ICRNL
    terminal.settle()
    assert settings(terminal) == before
    assert terminal.written.count(b"\x1b[?2004h") == terminal.written.count(b"\x1b[?2004l") == 1


def test_the_terminal_comes_back_after_an_error_too(terminal):
    before = settings(terminal)
    with pytest.raises(SystemExit), no_echo(terminal.out):
        raise SystemExit
    assert settings(terminal) == before


def test_without_a_terminal_nothing_is_done():
    read, write = os.pipe()
    with os.fdopen(read) as pipe, no_echo(pipe), no_echo(None), no_echo(io.StringIO()):
        pass
    os.close(write)
