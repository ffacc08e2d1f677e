"""Streams that are closed or full: two lines where they can be said, the right exit code, and no name of Python's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # a process each


def shell(line, tmp_path):
    own = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "COLUMNS": "80"}
    command = ["sh", "-c", line.replace("specdec ", f"{sys.executable} -m specdec_cli ", 1)]
    null = subprocess.DEVNULL
    return subprocess.run(command, env=os.environ | own, stdin=null, capture_output=True, text=True, timeout=120)


def two_lines(done):
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == ["error", "hint"], done.stderr
    assert "Error" not in done.stderr and "None" not in done.stderr
    return done.stderr.splitlines()[0]


def test_closed_stdin_and_stderr_are_empty_and_silent(tmp_path):
    done = shell("specdec --version <&- 2>&-", tmp_path)
    assert (done.returncode, done.stdout[:8]) == (0, "specdec ")
    assert shell("specdec run <&- 2>&-", tmp_path).returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")  # noqa: PTH110
def test_a_full_disk_under_stdout_is_said_with_exit_code_5(tmp_path):
    done = shell("specdec run -q -n 4 -k 0 'def f' > /dev/full", tmp_path)
    assert done.returncode == 5 and "No space left on device" in two_lines(done)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")  # noqa: PTH110
def test_a_trace_on_a_full_disk_leaves_the_answer_whole(tmp_path):
    done = shell("specdec run -q -n 8 -k 0 --temp 0 --trace /dev/full 'def f'", tmp_path)
    assert done.returncode == 5 and done.stdout.strip()
    assert "--trace /dev/full ends here" in two_lines(done)


def test_an_argument_that_is_not_utf_8_is_named(tmp_path):
    done = shell("specdec run -q -n 4 \"$(printf 'a\\377')\"", tmp_path)
    assert done.returncode == 2 and "is not UTF-8: byte 0xff" in two_lines(done)


def test_a_closed_stderr_does_not_cost_the_answer(tmp_path):
    run, lost = "specdec run --raw -n 5 -k 0 --temp 0 hi", "2>&-"
    done, whole = shell(f"{run} {lost}", tmp_path), shell(f"{run} 2>/dev/null", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, whole.stdout, "") and done.stdout
    assert shell(f"specdec run -p nosuch hi {lost}", tmp_path).returncode == 3


@pytest.mark.parametrize("command", ["pairs", "help bench", "run --help", "doctor", "run -h"])
def test_a_reader_that_has_left_ends_every_command_with_0_and_silence(tmp_path, command):
    """What rich printed ended with 1: `specdec pairs | head -1`."""
    read, write = os.pipe()
    os.close(read)
    own = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "specdec_cli", *command.split()],
        env=os.environ | own,
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")  # noqa: PTH110
def test_a_full_disk_under_stderr_costs_no_answer(tmp_path):
    """The bug: an empty stdout and exit code 1."""
    whole = shell("specdec run --raw -n 8 -k 0 'def f'", tmp_path)
    full = shell("specdec run --raw -n 8 -k 0 'def f' 2>/dev/full", tmp_path)
    assert whole.stdout and whole.stderr and (full.returncode, full.stdout) == (0, whole.stdout)
    assert shell("specdec run -k zz hi 2>/dev/full", tmp_path).returncode == 2
