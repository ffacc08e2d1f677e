"""Streams that are closed or full, and signals at any moment: the right exit code, and no name of Python's."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import termios
import time

import mlx.core as mx
import pytest

from fakes.terminal import Terminal

pytestmark = pytest.mark.slow  # a process each

needs_full_disk = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a device that is always full")


def shell(line, **extra):
    command = ["sh", "-c", line.replace("specdec ", f"{sys.executable} -m specdec_cli ", 1)]
    return subprocess.run(
        command,
        env=os.environ | {"COLUMNS": "80"} | extra,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def two_lines(done):
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["error", "hint"], done.stderr
    assert "Error" not in done.stderr and "None" not in done.stderr
    return done.stderr.splitlines()[0]


def test_closed_stdin_and_stderr_are_empty_and_silent():
    done = shell("specdec --version <&- 2>&-")
    assert (done.returncode, done.stdout[:8]) == (0, "specdec ")
    assert shell("specdec run <&- 2>&-").returncode == 2


@needs_full_disk
def test_a_full_disk_under_stdout_is_said_with_exit_code_5():
    done = shell("specdec run -p demo -q -n 4 -k 0 'def f' > /dev/full")
    assert done.returncode == 5 and "No space left on device" in two_lines(done)


@needs_full_disk
@pytest.mark.parametrize("line", ["specdec run 'def f'", "printf 'def f\\nand\\n' | specdec chat"])
def test_a_trace_on_a_full_disk_leaves_the_answer_whole_and_is_said_once(line):
    """A chat ended with `OSError` and exit 1."""
    done = shell(f"{line} -p demo -q -n 8 -k 0 --temp 0 --trace /dev/full")
    assert done.returncode == 5 and done.stdout.strip()
    assert "--trace /dev/full ends here" in two_lines(done)


def test_a_closed_stderr_does_not_cost_the_answer():
    run, lost = "specdec run --raw -n 5 -k 0 --temp 0 hi", "2>&-"
    done, whole = shell(f"{run} {lost}"), shell(f"{run} 2>/dev/null")
    assert (done.returncode, done.stdout, done.stderr) == (0, whole.stdout, "") and done.stdout
    assert shell(f"specdec run -p nosuch hi {lost}").returncode == 3


@pytest.mark.parametrize("command", ["pairs", "run -h"])
def test_a_reader_that_has_left_ends_every_command_with_0_and_silence(command):
    """What rich printed ended with 1: `specdec pairs | head -1`."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "specdec_cli", *command.split()],
        env=os.environ | {"COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(mx.metal.is_available(), reason="mlx compiles into no file there")
def test_a_temporary_folder_that_is_none_is_named():
    done = shell("specdec run --raw -q -n 4 x", TMPDIR="/nonexistent")
    assert done.returncode == 1 and "mlx cannot compile in the temporary folder" in two_lines(done)


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_where_the_locale_knows_ascii_alone_arguments_and_files_are_utf_8(tmp_path):
    """Arguments were refused as not UTF-8, whose bytes they were."""
    (tmp_path / "é日.txt").write_text("def é(日):")
    line = "specdec run --raw -q -n 8 -k 2 --temp 0 --stop '日本' --predict {0}/é日.txt --json 'def é(日😀):'"
    here = [shell(line.format(tmp_path), **more) for more in ({}, ASCII)]
    assert [done.returncode for done in here] == [0, 0], here[1].stderr
    starts, ends = ([json.loads(done.stdout.splitlines()[at]) for done in here] for at in (0, -1))
    assert starts[0] == starts[1] and ends[0]["tokens"] == ends[1]["tokens"]
    assert shell("specdec run -p 'nöwhere' x", **ASCII).returncode == 3
    done = shell("specdec run -p demo -q -n 4 \"$(printf 'a\\377')\"", **ASCII)
    assert done.returncode == 2 and "is not UTF-8: byte 0xff" in two_lines(done)


@needs_full_disk
def test_a_full_disk_under_stderr_costs_no_answer():
    """The bug: an empty stdout and exit code 1."""
    whole = shell("specdec run --raw -n 8 -k 0 'def f'")
    full = shell("specdec run --raw -n 8 -k 0 'def f' 2>/dev/full")
    assert whole.stdout and whole.stderr and (full.returncode, full.stdout) == (0, whole.stdout)
    assert shell("specdec run -k zz hi 2>/dev/full").returncode == 2


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


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_signal_at_any_moment_leaves_the_terminal_as_it_was(tmp_path):
    """At moments drawn from a seed, of the start, of a reply and of a chat's prompt, each on a terminal of its own.

    The program ends by itself with an exit code of the contract or 128 + the signal; the terminal echoes, is in line
    mode, and shows its cursor; nothing of Python's is on the screen.
    """
    dice = random.Random(SEED)
    for number in range(4 * len(SIGNALS)):
        name, arguments = list(SIGNALS)[number % len(SIGNALS)], RUN if number % 2 else CHAT
        screen, pause = Terminal(tmp_path, *arguments), dice.uniform(0.05, 6.0)
        before = termios.tcgetattr(screen.slave)
        for each in SIGNALS[name][0]:
            end = time.monotonic() + pause
            while time.monotonic() < end and screen.pump():
                pass
            if screen.process.poll() is None:
                screen.send(each)
            pause = dice.uniform(0.0, 0.4)
        end = time.monotonic() + 60
        while screen.pump():
            if arguments is CHAT and dice.random() < 0.2:
                screen.type("\x04")
            assert time.monotonic() < end, (number, name, screen.raw[-400:])
        after, (code, _) = termios.tcgetattr(screen.slave), screen.end()
        case = (number, name, arguments[0], code, screen.raw[-400:])
        assert code in SIGNALS[name][1], case
        assert after[3] & termios.ICANON and after[:4] == before[:4], case
        for begun, ended in ((b"\x1b[?25l", b"\x1b[?25h"), (b"\x1b[?2004h", b"\x1b[?2004l")):
            assert screen.raw.rfind(begun) <= screen.raw.rfind(ended), case
        assert b"Traceback (most recent" not in screen.raw, case  # the demo's own answers name errors
