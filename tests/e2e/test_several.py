"""One target over several processes on loopback: the words of one, whatever a clock says, and no process left over."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes import ranks
from fakes.ranks import CONFIGS, answers, folders, together
from golden.models import model_folders
from specdec_cli.core.errors import SpecdecError
from specdec_cli.several import launch
from specdec_cli.several.hosts import read_hosts
from specdec_cli.version import __version__

pytestmark = pytest.mark.slow
PROMPT = "def f(x):\n    return x"
GREEDY = {"max_tokens": 6, "temperature": 0.0}
DRAWN = {"max_tokens": 6, "temperature": 0.8, "seed": 7}
RULES = [{"k": 3, "rule": rule} for rule in ("token", "block", "coupled", "match")]
EVERY = [{**GREEDY, "k": k} for k in [*range(9), "auto"]] + [DRAWN | rule for rule in RULES]
EVERY += [DRAWN | {"k": "auto", "rule": "coupled"}, DRAWN | {"k": 4, "repetition_penalty": 1.3, "top_k": 20}]
ASKS = [{"prompt": PROMPT, "options": options} for options in EVERY]
TURNS = [
    {"prompt": PROMPT, "options": GREEDY | {"k": 3}},
    {"prompt": "\nand then?", "goes_on": True, "options": GREEDY | {"k": 0}},
    {"prompt": "\nmore", "goes_on": True, "options": GREEDY | {"k": "auto", "drafter": "auto"}},
    {"prompt": PROMPT * 30, "options": GREEDY | {"k": 2}},
]
# Ended by a person after some rounds, or left by whoever reads the events; then the next answer is whole.
BROKEN_OFF = [
    {"prompt": PROMPT, "options": {"max_tokens": 200, "temperature": 0.0, "k": 3, "ignore_eos": True}} | end
    for end in ({"cancelled_after": 4}, {"left_after": 3})
]


ENDLESS = {"max_tokens": 60, "temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("shared")
    return {name: folders(root, name) for name in CONFIGS}


@pytest.fixture(scope="module")
def two(pairs, tmp_path_factory):
    """What two ranks said, one case after another, and the cases."""
    root = tmp_path_factory.mktemp("two")
    made = model_folders("deepseek_v3", root)
    headed = [{"prompt": "1 2 3 4 5 6", "options": GREEDY | {"k": k}} for k in (0, 3, "auto")]
    cases = {name: {"pair": pair, "asks": ASKS + TURNS} for name, pair in pairs.items()}
    cases["head"] = {"pair": {"target": made["target"], "draft": made["head"]}, "asks": headed}
    cases["broken off"] = {"pair": pairs["qwen3"], "asks": [BROKEN_OFF[0], TURNS[0], BROKEN_OFF[1], *TURNS]}
    for k in (0, 4):
        ask = {"prompt": PROMPT, "options": ENDLESS | {"k": k}}
        cases[f"K {k}"] = {"pair": pairs["qwen3"], "asks": [ask]}
    code, found = together(2, list(cases.values()), root)
    assert code == 0
    return {name: (case, group) for (name, case), group in zip(cases.items(), found, strict=True)}


def tokens(found):
    return [reply["tokens"] for reply in found]


@pytest.mark.parametrize("name", [*CONFIGS, "head"])
def test_two_ranks_say_what_one_process_says_at_every_k_and_by_every_rule(name, two):
    case, group = two[name]
    assert tokens(group["replies"]) == tokens(answers(case))
    assert group["replies"][1]["drafted"]


def test_an_answer_that_is_broken_off_leaves_the_ranks_in_step(two):
    case, found = two["broken off"]
    alone, found = answers(case), found["replies"]
    assert found[0]["reason"] == "interrupted"
    for one, whole in ((found[0], alone[0]), (found[2], alone[2])):
        shorter = min(len(one["tokens"]), len(whole["tokens"]))
        assert shorter > 2
        assert one["tokens"][:shorter] == whole["tokens"][:shorter]
    assert tokens(found[1:2] + found[3:]) == tokens(alone[1:2] + alone[3:])


def test_k_plus_one_rows_share_the_sums_of_a_pass(two):
    """Two sums a layer and a pass, and one message a round; both are divided by what a round yields."""
    plain, drafted = two["K 0"][1], two["K 4"][1]
    for found in (plain, drafted):
        (reply,), beside = found["replies"], 75  # loading's and the prompt's, and measured steps
        assert 5 * reply["rounds"] <= found["sums"] <= 5 * reply["rounds"] + beside
    assert drafted["sums"] < 0.6 * plain["sums"]


@pytest.mark.full
def test_four_ranks_say_the_same(pairs, tmp_path):
    asks = [{"prompt": "x", "options": {"max_tokens": 3, "temperature": 0.0, "k": k}} for k in (0, 2, "auto")]
    cases = [{"pair": pair, "asks": asks[i : i + 1] + asks[2:]} for i, pair in enumerate(pairs.values())]
    code, found = together(4, cases, tmp_path)
    assert code == 0
    assert [tokens(group["replies"]) for group in found] == [tokens(answers(case)) for case in cases]


def test_a_rank_that_chooses_its_own_k_is_found(pairs, tmp_path, monkeypatch):
    """Control: without rank 0's plan the passes have other shapes: the words part, or the sums never end."""
    monkeypatch.setattr(launch, "PASS_SECONDS", 4.0)
    case = {"pair": pairs["qwen3"], "asks": [{"prompt": PROMPT, "options": GREEDY | {"k": "auto"}}, *ASKS[3:5]]}
    with pytest.raises(SpecdecError, match=r"different words|was lost|did not meet within 4 s"):
        together(2, [case], tmp_path, python=[sys.executable, ranks.__file__])


def test_another_version_elsewhere_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("FAULT", "version")
    monkeypatch.setattr(launch, "PYTHON", [sys.executable, ranks.__file__])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(ranks.__file__).parents[n]) for n in (1, 2)))
    command = [sys.executable, "-m", "specdec_cli", "doctor", "--hosts", "as above"]
    with pytest.raises(SpecdecError, match=f"specdec is 0.0.1 on rank 1, and {__version__} on rank 0"):
        launch.launch(read_hosts("127.0.0.1,127.0.0.1", None), command)


@pytest.fixture
def specdec(pairs, tmp_path):
    """Starts `specdec run` over two ranks, with an answer that takes a while; all its processes carry a mark."""
    started = []

    def start(*options, hosts="127.0.0.1,127.0.0.1", pair=None, **environment):
        models = pair or [f"--{role}={folder}" for role, folder in pairs["qwen3"].items()]
        command = [sys.executable, "-m", "specdec_cli", "run", *models, "--hosts", hosts, "--raw", *options, PROMPT]
        own = {"HOME": str(tmp_path), "MARK": str(tmp_path), "SPECDEC_CONFIG": str(tmp_path / "none")}
        streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(command, env=os.environ | own | environment, stdin=subprocess.DEVNULL, **streams)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def marked(mark):
    """The processes with that mark: {pid: command line}."""
    table = subprocess.run(["ps", "-Eww" if sys.platform == "darwin" else "eww", "-axo", "pid=,command="], **TEXT)
    lines = (line.split(None, 1) for line in table.stdout.splitlines() if f"MARK={mark}" in line)
    return {int(pid): command for pid, command in lines}


TEXT = {"capture_output": True, "text": True, "check": False}
VICTIMS = {"rank 1": "several.rank", "rank 0": "specdec_cli run", "the launcher": ""}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_rank_that_is_killed_ends_all_within_seconds(victim, specdec, tmp_path):
    process = specdec("-n", "900", "-k", "3", "--logit-bias", "0=-100", "--logit-bias", "2=-100")
    time.sleep(random.Random(victim).uniform(1.0, 5.0))
    found = marked(tmp_path)
    wanted = [pid for pid, line in found.items() if VICTIMS[victim] in line and pid != process.pid]
    os.kill(wanted[0] if VICTIMS[victim] and wanted else process.pid, signal.SIGKILL)
    began = time.monotonic()
    _, told = process.communicate(timeout=30)
    while marked(tmp_path) and time.monotonic() - began < 30:
        time.sleep(0.1)
    assert time.monotonic() - began < 25
    if process.returncode != -signal.SIGKILL:
        error, hint = told.decode().splitlines()[-2:]
        assert (process.returncode, error[:6], hint[:5]) == (1, "error:", "hint:")
        assert "signal 9" in error


def test_ssh_starts_the_others_and_says_why_it_cannot(specdec, tmp_path):
    """`ssh` is a program on the PATH that runs the command here, unless the machine is called off."""
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\n[ "$1" = off ] && ')
    fake.write_text(fake.read_text() + 'echo "ssh: host off: no route" >&2 && exit 255\nshift\nexec sh -c "$*"\n')
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    machines = [{"ssh": name, "ips": ["127.0.0.1"]} for name in ("here", "off")]
    files = [tmp_path / "on.json", tmp_path / "off.json"]
    for file, name in zip(files, ("other", "off"), strict=True):
        machines[1]["ssh"] = name
        file.write_text(json.dumps({"backend": "ring", "envs": [], "hosts": machines}))
    found = []
    for file in files:
        command = [sys.executable, "-m", "specdec_cli", "doctor", "--hostfile", str(file)]
        found.append(subprocess.run(command, env=os.environ | {"PATH": path, "HOME": str(tmp_path)}, **TEXT))
    assert found[0].returncode == 0
    assert "ranks\t2\tover ring" in found[0].stdout
    assert found[1].returncode == 1
    error, hint = found[1].stderr.splitlines()
    assert error == "error: rank 1 on off did not start: ssh: host off: no route"
    assert hint.startswith("hint: this must work without a password")


def test_a_target_whose_heads_do_not_divide_is_refused_by_both_and_once(specdec):
    process = specdec("-n", "8", pair=["-p", "demo"])
    out, told = process.communicate(timeout=60)
    error = "error: specdec:demo/target has 1 and 3 heads a layer, which 2 machines cannot share\nhint: "
    assert (process.returncode, out) == (4, b"")
    assert told.decode().startswith(error)
    assert told.count(b"\n") == 2


def test_only_rank_0_writes(specdec, tmp_path):
    trace = Path(tmp_path, "trace.jsonl")
    out, told = specdec("-n", "8", "-k", "2", "--json", "--trace", trace).communicate(timeout=60)
    assert told == b""
    assert out.decode() == trace.read_text()
    assert json.loads(out.splitlines()[-1])["event"] == "finish"
