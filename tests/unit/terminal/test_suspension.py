"""Ctrl-Z and `fg`, and keys typed meanwhile: handlers in this process, and a real shell around the panel."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from fakes.terminal import Terminal as Screen
from specdec_cli.terminal.suspension import Suspension, no_echo

BOTH = (signal.SIGTSTP, signal.SIGCONT)


def test_handlers_are_there_while_held_and_those_of_before_afterwards():
    before = [signal.getsignal(number) for number in BOTH]
    with Suspension(lambda: None, lambda: None):
        during = [signal.getsignal(number) for number in BOTH]
    assert all(map(callable, during)) and [signal.getsignal(number) for number in BOTH] == before


def test_going_on_after_any_stop_resumes():
    """Nothing can be done before SIGSTOP, which no program can catch."""
    resumed = []
    with Suspension(lambda: None, lambda: resumed.append(1)):
        signal.raise_signal(signal.SIGCONT)
    signal.raise_signal(signal.SIGCONT)
    assert resumed == [1]


def test_who_ignores_ctrl_z_goes_on_ignoring_it():
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        with Suspension(lambda: None, lambda: None):
            assert signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTSTP, before)


@pytest.mark.slow
def test_of_two_the_inner_one_leaves_first_and_resumes_last(tmp_path):
    """In a process of its own, which stops for a moment; its parent lets it go on."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from specdec_cli.terminal.suspension import Suspension
say = lambda word: (lambda: print(word, flush=True))
with Suspension(say("outer leaves"), say("outer resumes")), Suspension(say("inner leaves"), say("inner resumes")):
    for _ in range(2):
        signal.raise_signal(signal.SIGTSTP)
print("done")
"""
    # In a group of its own below this session: a stop signal of the terminal is ignored in an orphaned group.
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, process_group=0)
    for _ in range(2):
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTSTP
        os.kill(child.pid, signal.SIGCONT)
    out, _ = child.communicate(timeout=60)
    assert out.splitlines() == ["inner leaves", "outer leaves", "outer resumes", "inner resumes"] * 2 + ["done"]


@pytest.mark.slow
def test_where_nobody_could_let_it_go_on_it_does_not_stop_and_resumes():
    """In a session of its own the stop is ignored. The bug: what had been left was never resumed."""
    code = f"""
import signal, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from specdec_cli.terminal.suspension import Suspension
with Suspension(lambda: print("leaves"), lambda: print("resumes")):
    signal.raise_signal(signal.SIGTSTP)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True)
    assert done.stdout.splitlines() == ["leaves", "resumes"]


@pytest.fixture
def shell(tmp_path):
    """One with job control; its programs get SIGHUP when it is killed, however the test ends."""
    opened = Screen(tmp_path, program=("bash", "--norc", "-i"), PS1="$ ", LC_ALL="C.UTF-8", XTERM_VERSION="")
    yield opened
    opened.process.kill()
    opened.process.wait()


def echoes(shell):
    return bool(termios.tcgetattr(shell.slave)[3] & termios.ECHO)


def replying(shell, command):
    """Starts `command` in the shell and waits until its panel is there."""
    shell.wait("$").type(f"set +o emacs; unset XTERM_VERSION; clear\n{command}\n")
    if " chat " in command:
        shell.wait("❯").type("hello\r")
    shell.wait("· round ").settle(0.3)
    assert shell.screen.cursor.hidden and not echoes(shell)
    shell.type("\x1a")
    shell.wait("Stopped").settle(1.0)
    assert not shell.screen.cursor.hidden


def going_on(shell):
    """After `fg` the reply's panel is drawn again, nothing echoes, and Ctrl-C, of which nothing is painted, ends it."""
    shell.type("fg\n")
    end = time.monotonic() + 30
    while not shell.screen.cursor.hidden:
        assert shell.pump() and time.monotonic() < end, shell.text()
    shell.settle(0.5)
    assert not echoes(shell)
    shell.type("\x03")
    assert "^C" not in shell.wait("interrupted: the").text()


@pytest.mark.metal
@pytest.mark.slow
@pytest.mark.parametrize(("command", "wrapped"), [("chat", False), ("run", True)])
def test_ctrl_z_in_a_reply_and_fg_leave_no_hidden_cursor_and_no_painted_ctrl_c(shell, endless, command, wrapped):
    """The bugs: under a wrapper (`uv run`), which stops first, the shell had the terminal before the cursor was shown;
    after `fg` the terminal echoed again, and ^C was painted into the panel."""
    words = f"{sys.executable} -m specdec_cli {command} --target {endless} -n 90000 {'hello' * (command == 'run')}"
    replying(shell, f"sh -c '{words} ; true'" if wrapped else f"{words} ")
    going_on(shell)


@pytest.mark.slow
def test_a_reply_in_the_background_leaves_the_shell_its_cursor_and_takes_the_terminal_back_with_fg(shell, endless):
    """The bugs: after `bg` the panel hid the shell's cursor; `fg`, which sends no signal then, left echo on."""
    replying(shell, f"{sys.executable} -m specdec_cli chat --target {endless} -n 90000 ")
    shell.type("bg\n")
    shell.settle(1.5)
    assert not shell.screen.cursor.hidden and echoes(shell)
    going_on(shell)


def settings(terminal) -> list:
    return termios.tcgetattr(terminal.out.fileno())


@pytest.mark.slow
def test_nothing_is_echoed_meanwhile_and_the_terminal_comes_back_as_it_was(terminal):
    before = settings(terminal)
    with no_echo(terminal.out):
        assert not settings(terminal)[3] & termios.ECHO and settings(terminal)[3] & termios.ISIG
        assert settings(terminal)[3] & termios.ICANON
    assert settings(terminal) == before


@pytest.mark.slow
def test_an_editor_gets_every_key_and_marked_pastes_and_the_shell_bare_ones(terminal):
    before = settings(terminal)
    with no_echo(terminal.out, terminal.err.fileno()):
        assert not settings(terminal)[3] & termios.ICANON and not settings(terminal)[0] & termios.ICRNL
    terminal.settle()
    assert settings(terminal) == before
    assert terminal.written.count(b"\x1b[?2004h") == terminal.written.count(b"\x1b[?2004l") == 1


def test_without_a_terminal_nothing_is_done():
    read, write = os.pipe()
    with os.fdopen(read) as pipe, no_echo(pipe), no_echo(None), no_echo(io.StringIO()):
        pass
    os.close(write)


# A pass as Python sees one: a call of minutes in which no handler runs, and other threads do.
IN_A_PASS = """
import hashlib, os, signal, sys, threading, time
from specdec_cli.session.signals import Interrupt
from specdec_cli.terminal.suspension import Suspension, answer_press
def press():
    for _ in range(2):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
given_back = Suspension(lambda: os.write(1, b"given back"), lambda: None)
with given_back, Interrupt(stuck=lambda presses: answer_press(presses, sys.stderr, True, False)):
    threading.Thread(target=press, daemon=True).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""


@pytest.mark.slow
def test_ctrl_c_amid_a_long_pass_is_answered_at_once_and_a_second_one_ends_it_with_the_terminal_given_back():
    """The bug: the first showed nothing for a minute, and two within one pass were one."""
    master, slave = os.openpty()
    done = subprocess.run([sys.executable, "-c", IN_A_PASS], stdout=subprocess.PIPE, stderr=slave, timeout=60)
    os.close(slave)
    assert (done.returncode, done.stdout) == (130, b"given back")
    assert b"stopping after this piece; Ctrl-C again ends now" in os.read(master, 1000)
    os.close(master)
