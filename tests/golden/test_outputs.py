"""Golden (b) to (d): what the command line, HTTP and a terminal show, as recorded.

What clocks and this machine's memory decide is masked (`masks`). Recorded on another processor or mlx, what the demo
pair answers is left out: near-ties are rounded elsewise there. Its figures are recomputed from its rounds everywhere.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import specdec_cli as specdec
from fakes.command import Command
from fakes.scripted_model import Script, scripted_folder
from fakes.terminal import Terminal
from golden.masks import LIVE, WIDTHS, mask, mask_race
from golden.record import DATA, agree, require_same
from specdec_cli.core.events import to_dict
from specdec_cli.pairs import catalog

HERE = Path(__file__).parent
TRACE = DATA / "answer.jsonl"
SCRIPTS = (
    Script("list_files", {"folder": "src", "hidden": False}, "Two files: main.py and README.md."),
    Script("exec_command", {"cmd": "cat notes.txt"}, "Codex says: the notes speak of apples and of pears."),
    Script("Read", {"file_path": "third.md"}, "Claude: this book holds one line about a small zoo!"),
    Script("read", {"filePath": "b.txt"}, "OpenCode has seen what that text told: seven quick foxes."),
)


# (b) The command line.


def said(command, line, home):
    """[exit code, stdout, stderr]."""
    code, out, err = command(*[str(TRACE) if word == "TRACE" else word for word in shlex.split(line)])
    widths = WIDTHS if re.match(r"(pairs|check)(?!.* (-h|--help|--json)$)", line) else ()
    live = () if line.startswith("replay") else LIVE
    return [code, mask(out, home, *widths), mask(err, home, *widths, *live)]


@pytest.mark.slow
def test_helps_answers_and_refusals_are_as_recorded(tmp_path, monkeypatch, capsys, device_says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "physical_bytes", lambda: 16 << 30)  # which pairs fit, and the one that is recommended
    device_says(working_set_bytes=None)
    command = Command(tmp_path, monkeypatch, capsys)
    lines = (HERE / "commands.txt").read_text("utf-8").splitlines()
    items = {line: said(command, line, tmp_path) for line in lines}
    refused = [item for item in items.values() if item[0]]
    assert len(refused) >= 80
    for code, out, err in refused:
        begins = [line[:6] for line in err.splitlines()[-2:]]
        assert (code in (2, 3, 5), begins) == (True, ["error:", "hint: "]), err
        assert not out or json.loads(out)["exit_code"] == code, out
    agree("commands", items, lambda line: " -n " in line)


# Every figure, by its definition and from the rounds alone.


def figures(events):
    """What `stats` must hold of the rounds among these events."""
    rounds = [event for event in events if event["event"] == "round"]
    drafted, accepted = ([len(r["draft"]) for r in rounds], [r["accepted"] for r in rounds])
    judged = sum(a + (a < d) for a, d in zip(accepted, drafted, strict=True))
    emitted, deepest = sum(len(r["emitted"]) for r in rounds), max(drafted)

    def share(part, whole):
        return part / whole if whole else None

    return {
        "rounds": len(rounds),
        "target_passes": len(rounds),
        "emitted_tokens": emitted,
        "draft_n": sum(drafted),
        "draft_n_accepted": sum(accepted),
        "draft_acceptance_rate": share(sum(accepted), sum(drafted)),
        "judged_acceptance_rate": share(sum(accepted), judged),
        "mean_acceptance_length": share(emitted, len(rounds)),
        "acceptance_per_position": [
            share(sum(a > i for a in accepted), sum(d > i for d in drafted)) for i in range(deepest)
        ],
        "rounds_at_k": [drafted.count(k) for k in range(deepest + 1)],
    }


def require_figures(events):
    """Raises: AssertionError where the finish event tells another figure than the rounds before it."""
    told, due = events[-1]["stats"], figures(events)
    require_same("stats", due, {name: told[name] for name in due})


@pytest.fixture(scope="module")
def demo():
    return specdec.load("demo")


@pytest.mark.parametrize(
    "drafting",
    [{"k": 4}, {"k": 0}, {"k": 3, "drafter": "ngram"}, {"k": 8, "temperature": 0.8, "seed": 7, "rule": "block"}],
)
def test_every_figure_follows_from_the_rounds_and_so_does_the_summary(demo, drafting, tmp_path, monkeypatch, capsys):
    reply = demo.session().reply("def read_lines(path):", raw=True, max_tokens=12, **drafting)
    events = [to_dict(event) for event in reply]
    require_figures(events)
    (tmp_path / "trace").write_text("".join(json.dumps(event) + "\n" for event in events))
    due, summary = figures(events), Command(tmp_path, monkeypatch, capsys)("replay", tmp_path / "trace")[2]
    assert f"{due['emitted_tokens']} tokens in {due['target_passes']} passes" in summary
    if due["draft_n"]:
        assert f"accepted {100 * due['draft_acceptance_rate']:.0f} % of drafted" in summary


def test_one_wrong_figure_is_found():
    """Negative control: of the recorded trace each figure in turn, off by one."""
    events = [json.loads(line) for line in TRACE.read_text("utf-8").splitlines()]
    require_figures(events)
    for name, value in figures(events).items():
        wrong = [*value[:-1], value[-1] + 1] if isinstance(value, list) else value + 1
        with pytest.raises(AssertionError, match=f"stats > {name}"):
            require_figures([*events[:-1], events[-1] | {"stats": events[-1]["stats"] | {name: wrong}}])


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
        "no prompt at all": ended([*asked, "12"]),
        "the reader leaves": ended([*asked, "900", "def read_lines(path):"], stop=0),
        "Ctrl-C": ended([*asked, "900", "def read_lines(path):"], stop=signal.SIGINT),
    }, lambda key: key.startswith("stdin"))  # fmt: skip


# (c) HTTP: what SDKs and agents sent, and what others send.


@contextmanager
def server(tmp_path):
    """A client of `specdec serve` with a model that says what a script says, whatever rounds its products."""
    folder = scripted_folder(tmp_path / "scripted", SCRIPTS)
    words = [sys.executable, "-m", "specdec_cli", "serve", "--target", folder, "--drafter", "ngram", "-k", "4"]
    child = subprocess.Popen([*words, "--port", "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        url = next(found[0] for line in child.stderr if (found := re.search(r"http://127[\d.:]+", line)))
        with httpx.Client(base_url=url, timeout=200) as client:
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


def frames(arguments, home):
    """What stands on a terminal of 80 columns at the end."""
    terminal = Terminal(home, *arguments)
    terminal.end()
    return [[line.rstrip() for line in terminal.screen.display if line.strip()]]


@pytest.mark.slow
def test_frames_on_a_terminal_are_as_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    race = ("race", "--raw", "-k", "4", "-n", "24", "--temp", "0", "def read_lines(path):")
    shown = {
        "panel": frames(("replay", TRACE, "--speed", "inf"), tmp_path),
        "race": [mask_race(frame, tmp_path) for frame in frames(race, tmp_path)],
    }
    agree("frames", shown, lambda key: key == "race")
