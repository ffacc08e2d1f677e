"""What specdec does where macOS is stood in for, and that the stand-in finds what only Linux has."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.terminal import Terminal
from macos.stand_in import FOLDER, STARTS

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests/macos"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="a Mac is one")]


def ran(*arguments, mac=True, starts=None, **options):
    """A finished Python, where macOS is stood in for, or not."""
    paths = [str(STAND_IN)] * mac + [str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if name not in (FOLDER, "MACOS_STARTS")}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "80"} | ({STARTS: str(starts)} if starts else {})
    if not mac:  # as the caller's path is where this runs in the stand-in
        others = [one for one in environment["PATH"].split(os.pathsep) if not one.startswith(str(STAND_IN))]
        environment["PATH"] = os.pathsep.join(others)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)


def test_readmes_first_command_says_there_what_it_says_here():
    """No model loaded on any Mac: `os.sched_getaffinity` was asked before whether there is a BLAS."""
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if "specdec run --raw" in line)
    words = shlex.split(line.partition("specdec run")[2])
    there, here = (ran("-m", "specdec_cli", "run", *words, mac=mac) for mac in (True, False))
    assert (there.returncode, here.returncode) == (0, 0), there.stderr + here.stderr
    assert len(there.stdout) > 100 and there.stdout == here.stdout


# A call that is planted where every pair is loaded, as the product's own.
PLANTED = """
import sys
from specdec_cli.session import load
original, plant = load.load_files, sys.argv.pop(1)
def planted(*arguments):
    exec(plant, vars(load))
    return original(*arguments)
load.load_files = planted
from specdec_cli.main import main
main()
"""
SPECDEC = ("run", "--raw", "-q", "-n", "2", "def f(")
PLANTS = {
    "a function": "import os; os.sched_getaffinity(0)",
    "a file in memory": "import os; os.close(os.memfd_create('x'))",
    "a flag": "import os; os.close(os.open('/tmp', os.O_TMPFILE | os.O_RDWR))",
    "the kernel's processes": "open('/proc/self/status').close()",
    "the kernel's devices": "import pathlib; assert pathlib.Path('/sys').is_dir()",
    "a selector": "import select; select.epoll().close()",
    "a signal": "import signal; signal.SIGRTMIN",
    "a socket's option": "import socket; socket.SO_PEERCRED",
    "a library": "import ctypes; ctypes.CDLL('libc.so.6')",
    "a system": "import sys; assert sys.platform == 'linux'",
    "a thread count": "import os; os.environ['OMP_NUM_THREADS']",
    "two names that differ by case": """
import pathlib, tempfile
with tempfile.TemporaryDirectory() as name:
    for text in ('Talk', 'talk'):
        pathlib.Path(name, text).write_text(text)
    assert pathlib.Path(name, 'Talk').read_text() == 'Talk'""",
    "a name that is listed as it was written": """
import os, pathlib, tempfile
with tempfile.TemporaryDirectory() as name:
    pathlib.Path(name, 'é').touch()
    assert os.listdir(name) == ['é']""",
    "a folder without a blank": """
import platformdirs
assert 'Application Support' not in str(platformdirs.user_state_path('x'))""",
}


@pytest.mark.parametrize("plant", PLANTS)
def test_what_only_linux_has_is_found(plant, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    there, here = (ran("-c", PLANTED, PLANTS[plant], *SPECDEC, mac=mac) for mac in (True, False))
    assert (here.returncode, here.stderr) == (0, ""), here.stderr
    assert there.returncode == 1 and there.stderr.startswith("error: "), there.stderr


def test_twenty_replies_ask_for_the_power_once_in_ten_seconds(tmp_path):
    """Each entry of the cost file, several a reply, started `pmset` twice."""
    starts = tmp_path / "starts"
    lines = "".join(f"def f{number}(\n/clear\n" for number in range(20))
    done = ran("-m", "specdec_cli", "chat", "-p", "demo", "-n", "40", "--json", starts=starts, input=lines)
    assert done.returncode == 0, done.stderr
    finished = [event for line in done.stdout.splitlines() if (event := json.loads(line))["event"] == "finish"]
    asked = starts.read_text().splitlines().count("pmset -g batt")
    seconds = sum(event["stats"]["total_seconds"] for event in finished)
    assert len(finished) == 20 and 1 <= asked <= 2 + seconds / 10


def test_a_chat_on_a_terminal_that_no_kqueue_waits_for_reads_lines_instead_of_ending(tmp_path):
    """`specdec chat </dev/tty` ended at once, silently and with exit code 0, and so did `run` without a prompt."""
    reads = 'exec "$0" -m specdec_cli chat -p demo -n 8 </dev/tty'
    paths = os.pathsep.join([str(STAND_IN), str(ROOT)])
    chat = Terminal(tmp_path, program=("sh", "-c", reads, sys.executable), PYTHONPATH=paths)
    chat.wait("/help").type("def f(a):\r")
    chat.wait("stopped at --max-tokens 8").type("\x04")
    assert chat.end()[0] == 0
