"""Streams that are closed or full: two lines where they can be said, the right exit code, and no name of Python's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import mlx.core as mx
import pytest

pytestmark = pytest.mark.slow  # a process each


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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")  # noqa: PTH110
def test_a_full_disk_under_stdout_is_said_with_exit_code_5():
    done = shell("specdec run -p demo -q -n 4 -k 0 'def f' > /dev/full")
    assert done.returncode == 5 and "No space left on device" in two_lines(done)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")  # noqa: PTH110
def test_a_trace_on_a_full_disk_leaves_the_answer_whole():
    done = shell("specdec run -p demo -q -n 8 -k 0 --temp 0 --trace /dev/full 'def f'")
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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a device that is always full")  # noqa: PTH110
def test_a_full_disk_under_stderr_costs_no_answer():
    """The bug: an empty stdout and exit code 1."""
    whole = shell("specdec run --raw -n 8 -k 0 'def f'")
    full = shell("specdec run --raw -n 8 -k 0 'def f' 2>/dev/full")
    assert whole.stdout and whole.stderr and (full.returncode, full.stdout) == (0, whole.stdout)
    assert shell("specdec run -k zz hi 2>/dev/full").returncode == 2
