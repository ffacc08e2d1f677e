"""Signals at random moments of a reply and of a chat's prompt, each on a terminal of its own, from a seed.

Law: the program ends by itself with an exit code of the contract or 128 + the signal; the terminal echoes, is in line
mode, and shows its cursor; nothing of Python's is on the screen. Children are forked from one process with everything
imported, so that one takes a second.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="macOS forbids forks of a process with its frameworks loaded"),
]
SEED = int(os.environ.get("FUZZ_SEED", "16"))
RUN = ["run", "-p", "demo", "-n", "400", "-k", "3", "def read(path):"]
CHAT = ["chat", "-p", "demo", "-n", "400"]
# (signals in turn, exit codes)
SIGNALS = {
    "one Ctrl-C": ([signal.SIGINT], {0, 130}),
    "two Ctrl-C": ([signal.SIGINT, signal.SIGINT], {0, 130, -signal.SIGINT}),
    "a polite end": ([signal.SIGTERM], {0, 128 + signal.SIGTERM, -signal.SIGTERM}),
    "two polite ends": ([signal.SIGTERM, signal.SIGTERM], {0, 128 + signal.SIGTERM, -signal.SIGTERM}),
    "a closed window": ([signal.SIGHUP], {0, 128 + signal.SIGHUP, -signal.SIGHUP}),
    "Ctrl-\\": ([signal.SIGQUIT], {0, 128 + signal.SIGQUIT, -signal.SIGQUIT}),
    # Nobody could let this process go on, so it does not stop.
    "Ctrl-Z, then Ctrl-C": ([signal.SIGTSTP, signal.SIGINT], {0, 130}),
}
FORKER = """
import os, sys, signal
import specdec_cli.main as program
import specdec_cli.session.session, specdec_cli.session.load, specdec_cli.apps.chat.loop
import specdec_cli.apps.chat.line_editor, specdec_cli.apps.chat.screen
import transformers, mlx_lm.models.llama, mlx_lm.models.qwen3
for line in sys.stdin:
    name, *arguments = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.setsid()
        terminal = os.open(name, os.O_RDWR)  # the first one opened becomes the session's own
        for number in range(3):
            os.dup2(terminal, number)
        for number, (stream, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            setattr(sys, stream, os.fdopen(number, mode, encoding="utf-8", closefd=False))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["specdec", *arguments]
        try:
            program.main()
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)
        os._exit(99)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture
def forker():
    process = subprocess.Popen(
        [sys.executable, "-c", FORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=os.environ | {"TERM": "xterm"},
    )
    yield process
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


def trial(forker, arguments, signals, dice):
    """(exit code, what was written, the terminal's modes before, after)."""
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    forker.stdin.write("\t".join([os.ttyname(slave), *arguments]) + "\n")
    child, written = int(forker.stdout.readline()), b""
    pause = dice.uniform(0.05, 1.6)
    for number in signals:
        end = time.monotonic() + pause
        while time.monotonic() < end:
            written += drained(master)
        try:
            os.kill(child, number)
        except ProcessLookupError:
            break
        pause = dice.uniform(0.0, 0.4)
    if arguments[0] == "chat":
        os.write(master, b"\x04")
    end = time.monotonic() + 60
    while not select.select([forker.stdout], [], [], 0)[0]:
        written += drained(master)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        if arguments[0] == "chat" and dice.random() < 0.2:
            os.write(master, b"\x04")
    code = int(forker.stdout.readline())
    written += drained(master)
    after = termios.tcgetattr(slave)
    os.close(slave)
    os.close(master)
    return code, written, before, after


def drained(master):
    if not select.select([master], [], [], 0.05)[0]:
        return b""
    data = os.read(master, 65536)
    if b"\x1b[6n" in data:  # where is the cursor?
        os.write(master, b"\x1b[1;1R")
    return data


@pytest.mark.full
def test_a_signal_at_any_moment_leaves_the_terminal_as_it_was(forker):
    dice = random.Random(SEED)
    for number in range(4 * len(SIGNALS)):
        name = list(SIGNALS)[number % len(SIGNALS)]
        arguments = RUN if number % 2 else CHAT
        signals, codes = SIGNALS[name]
        code, written, before, after = trial(forker, arguments, signals, dice)
        case = (number, name, arguments[0], code, written[-400:])
        assert code in codes, case
        assert after[3] & termios.ECHO and after[3] & termios.ICANON and after[:4] == before[:4], case
        assert written.rfind(b"\x1b[?25l") <= written.rfind(b"\x1b[?25h"), case
        assert written.rfind(b"\x1b[?2004h") <= written.rfind(b"\x1b[?2004l"), case
        assert b"Traceback (most recent" not in written, case  # the demo's own answers name errors
