"""Golden (b) to (d): what the command line, HTTP and a terminal show, as recorded.

Clocks, ids, ports and folders are masked, and so are the figures of what reads this machine. Recorded on another
processor or mlx, what the demo pair answers is left out: near-ties are rounded elsewise there.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import httpx
import pexpect
import pyte
import pytest

from fakes.command import Command
from fakes.scripted_model import Script, scripted_folder
from golden.record import DATA, agree, read, require_same

HERE = Path(__file__).parent
TRACE = DATA / "answer.jsonl"
CLOCKS = r"[\w.]*(?:seconds|_ms|per_second|speedup|break_even|_bytes|memory|created|completed_at|time)\w*|low|high"
MADE = r"(?:chatcmpl|cmpl|resp|msg|fc|call|rs|toolu|ws)"
MASKS = (
    (rf'"({CLOCKS})": ?(?:-?[\d.e+-]+|null)', r'"\1": 0'),
    (rf'"(\w*id)": ?"(?:{MADE}[\w-]+|\w{{9}})"', r'"\1": "ID"'),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"\S+/huggingface/hub", "CACHE"),
)
FIGURES = ((r"\d[\d.,]*", "#"), (r" {2,}", "  "), (r"[─━]{3,}", "──"))
SCRIPTS = (
    Script("list_files", {"folder": "src", "hidden": False}, "Two files: main.py and README.md."),
    Script("exec_command", {"cmd": "cat notes.txt"}, "Codex says: the notes speak of apples and of pears."),
    Script("Read", {"file_path": "third.md"}, "Claude: this book holds one line about a small zoo!"),
    Script("read", {"filePath": "b.txt"}, "OpenCode has seen what that text told: seven quick foxes."),
)


def mask(text: str, home: Path, figures: bool = False) -> str:
    folders = ((re.escape(str(place)), name) for place, name in ((home, "HOME"), (DATA, "DATA")))
    for pattern, instead in (*folders, *MASKS, *(FIGURES if figures else ())):
        text = re.sub(pattern, instead, text)
    return text


# (b) The command line.


def said(command, line, home):
    """[exit code, stdout, stderr]."""
    code, out, err = command(*[str(TRACE) if word == "TRACE" else word for word in shlex.split(line)])
    figures = code == 0 and not re.search(r" --json| -q|-h$|--help$", line)
    return [code, mask(out, home, figures), mask(err, home, figures)]


@pytest.mark.slow
def test_helps_answers_and_refusals_are_as_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = Command(tmp_path, monkeypatch, capsys)
    lines = (HERE / "commands.txt").read_text("utf-8").splitlines()
    agree("commands", {line: said(command, line, tmp_path) for line in lines}, lambda line: " -n " in line)


def test_a_wrong_line_gets_two_lines_and_its_own_exit_code():
    refused = [item for item in read("commands")["items"].values() if item[0]]
    assert len(refused) >= 80
    for code, out, err in refused:
        begins = [line[:6] for line in err.splitlines()[-2:]]
        assert (code in (2, 3, 5), out, begins) == (True, "", ["error:", "hint: "]), err


@pytest.mark.slow
def test_pipes_and_ctrl_c_are_as_recorded(tmp_path):
    specdec = [sys.executable, "-m", "specdec_cli"]
    asked = [*specdec, "run", "--raw", "-k", "4", "-q", "-n"]

    def ended(arguments, given=b"", stop=None):
        """`stop`, once the first byte came: a signal, or 0 and the reader leaves."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(arguments, cwd=tmp_path, **pipes) as child:
            if stop is None:
                out, err = child.communicate(given)
                return [child.returncode, out.decode(), err.decode()]
            child.stdin.close()
            child.stdout.read(1)
            child.send_signal(stop) if stop else child.stdout.close()
            err = child.stderr.read().decode()
            return [child.wait(), "", err]

    agree("processes", {
        "stdin is the prompt": ended([*asked, "12"], b"def read_lines(path):"),
        "stdin comes before the prompt": ended([*asked, "12", "def read_lines(path):"], b"import os\n"),
        "no prompt at all": ended([*asked, "12"]),
        "the reader leaves": ended([*asked, "900", "def read_lines(path):"], stop=0),
        "Ctrl-C": ended([*asked, "900", "def read_lines(path):"], stop=signal.SIGINT),
        "SIGTERM": ended([*asked, "900", "def read_lines(path):"], stop=signal.SIGTERM),
    }, lambda key: key.startswith("stdin"))  # fmt: skip


# (c) HTTP: what SDKs and agents sent, and what others send.


@contextmanager
def server(tmp_path):
    """A client of `specdec serve` with a model that says what a script says, whatever rounds its products."""
    folder = scripted_folder(tmp_path / "scripted", SCRIPTS)
    words = [sys.executable, "-m", "specdec_cli", "serve", "--target", folder, "--drafter", "ngram", "-k", "4"]
    child = subprocess.Popen([*words, "--port", "0", "--no-panel"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        url = next(found[0] for line in child.stderr if (found := re.search(r"http://127[\d.:]+", line)))
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)


def exchange(client, asked, home):
    answer = client.request(asked["method"], asked["path"], json=asked["body"], headers=asked["headers"])
    return [answer.status_code, answer.headers["content-type"], mask(answer.text, home)]


@pytest.mark.slow
def test_exchanges_over_http_are_as_recorded(tmp_path):
    asked = json.loads((HERE / "asked.json").read_text("utf-8"))
    with server(tmp_path) as client:
        answers = [exchange(client, each, tmp_path) for each in asked]
    names = [f"{i:02} {each['name']} {each['path']}" for i, each in enumerate(asked)]
    agree("http", dict(zip(names, answers, strict=True)))


# (d) Frames.


STEPS = (("\r", "round 1 "), ("\r", "round 2 "), ("\r", "round 3 "), ("r", "stopped"))


def frames(columns, arguments, home, keys=(), first=""):
    """What stands on a terminal once `first` does, after each key, and at the end."""
    screen = pyte.Screen(columns, 40)
    stream = pyte.Stream(screen)
    environment = {"HOME": str(home), "TERM": "xterm-256color", "PATH": "/bin"}
    arguments = ["-m", "specdec_cli", *map(str, arguments)]
    given = {"encoding": "utf-8", "dimensions": (40, columns), "cwd": home, "env": environment}
    child = pexpect.spawn(sys.executable, arguments, **given)
    shown = []

    def follow(text):
        """Until the screen rests with `text` on it, or the program has ended."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                stream.feed(child.read_nonblocking(65_536, timeout=0.3))
            except pexpect.TIMEOUT:
                if text and text in "\n".join(screen.display):
                    break
            except pexpect.EOF:
                break
        shown.append([line.rstrip() for line in screen.display if line.strip()])

    if first:
        follow(first)
    for key, text in keys:
        child.send(key)
        follow(text)
    follow("")
    child.close()
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_frames_on_a_terminal_are_as_recorded(columns, tmp_path):
    race = ("race", "--raw", "-k", "4", "-n", "24", "--temp", "0", "def read_lines(path):")
    shown = {
        "panel": frames(columns, ("replay", TRACE, "--step"), tmp_path, STEPS, "reading"),
        "bench": frames(columns, ("bench", "--compare", DATA / "before.json", DATA / "after.json"), tmp_path),
        "race": [[line for line in frame if not re.search(r"\d", line)] for frame in frames(columns, race, tmp_path)],
    }
    agree(f"frames-{columns}", shown, lambda key: key == "race")


@pytest.mark.parametrize("name", ["commands", "processes", "http", "frames-60", "frames-80", "frames-120"])
def test_one_field_changed_is_found(name):
    """Negative control: of each entry, its last character."""
    items = read(name)["items"]
    for key, value in items.items():
        changed = deepcopy(value)
        last = changed
        while isinstance(last[-1], list) and last[-1]:
            last = last[-1]
        last[-1] = f"{last[-1]}!"
        with pytest.raises(AssertionError, match=re.escape(f"golden {name} > {key}")):
            require_same(f"{name} > {key}", value, changed)
