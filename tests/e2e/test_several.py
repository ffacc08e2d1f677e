"""One target over several processes on loopback: the words of one, whatever a clock says, and no process left over."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import pytest

from fakes import ranks
from fakes.models import swap_two_ids
from fakes.ranks import CONFIGS, answers, folders, together
from golden.models import model_folders
from specdec_cli.apps.several import launch
from specdec_cli.apps.several.launch import read_hosts
from specdec_cli.core.errors import SpecdecError
from specdec_cli.models.checkpoint import ADAPTER
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
    """Two sums a layer and a pass, a message, a verdict and, where there is one, a draft; all of them by what a round
    yields."""
    plain, drafted = two["K 0"][1], two["K 4"][1]
    for found, a_round in ((plain, 6), (drafted, 7)):
        (reply,), beside = found["replies"], 75  # loading's and the prompt's, and measured steps
        assert a_round * reply["rounds"] <= found["sums"] <= a_round * reply["rounds"] + beside
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
    with pytest.raises(SpecdecError, match=r"different tokens|was lost|did not meet within 4 s"):
        together(2, [case], tmp_path, fault="own_k")


def test_another_version_elsewhere_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("FAULT", "other_version")
    monkeypatch.setattr(launch, "PYTHON", [sys.executable, ranks.__file__])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(ranks.__file__).parents[n]) for n in (1, 2)))
    command = [sys.executable, "-m", "specdec_cli", "doctor", "--hosts", "as above"]
    with pytest.raises(SpecdecError, match=f"specdec is 0.0.1 on rank 1, and {__version__} on rank 0"):
        launch.launch(read_hosts("127.0.0.1,127.0.0.1"), command)


DRAWN_BY = ["token", "block", "coupled", "match"]
TEXTS = [PROMPT, "aaaa bbbb aaaa bbbb aaaa", "x = [1, 2, 3]\ny = [1, 2, 3]\nx", "", "?"]
WAYS = [
    {"drafter": "ngram"},
    {"predict": "def f(x):\n    return x + 1"},
    {"logprobs": 3},
    {"stop_tokens": [40, 41, 42]},
]
WAYS += [{"repetition_penalty": 1.3}, {"bad_words": ["a", "e"], "min_tokens": 4}, {}, {}, {}]


def short_replies(number):
    """So many requests of every kind: who drafts, how many, by which rule, and inside what shape."""
    odds = random.Random(63)
    for place in range(number):
        options = {"max_tokens": odds.randint(1, 12), "k": odds.choice([0, 1, 3, 6, "auto"])} | odds.choice(WAYS)
        rule = odds.choice(DRAWN_BY if options["k"] != "auto" else ["coupled", "match"])  # by others rounds are words
        drawn = {"temperature": 0.9, "seed": place, "rule": rule}
        options |= odds.choice([{"temperature": 0.0}, drawn])
        ask = {"prompt": "a" + odds.choice(TEXTS) + str(place), "options": options}
        if place % 5 == 0 and "bad_words" not in options:
            ask["regex"] = '\\{"name": "[a-z]{1,4}", "size": [0-9]+\\}'
        yield ask | ({"plain": True} if place % 11 == 10 else {})


@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.full)])
def test_a_rank_that_rounds_otherwise_changes_no_word_and_ends_no_reply(number, pairs, tmp_path):
    """Each rank drew its own draft and its own verdict: of replies with a rank that flipped half of its choices most
    ended by "different tokens", or in 300 s of silence where it was the last round."""
    made = model_folders("deepseek_v3", tmp_path)
    headed = [{"prompt": "1 2 3 4 5 6", "options": GREEDY | {"k": k}} for k in (0, 3, "auto")]
    cases = [{"pair": pairs[name], "asks": list(short_replies(number // 2))} for name in ("qwen3", "llama")]
    cases.append({"pair": {"target": made["target"], "draft": made["head"]}, "asks": headed})
    code, found = together(2, cases, tmp_path, fault="unlike")
    assert code == 0
    for case, group in zip(cases, found, strict=True):
        assert tokens(group["replies"]) == tokens(answers(case))
    assert sum(reply.get("drafted", 0) for group in found for reply in group["replies"]) > number


EOS, OTHER = 2, 77


@pytest.mark.parametrize(("k", "place", "token"), [(0, 11, OTHER), (3, 11, OTHER), (3, 6, OTHER), (0, 5, EOS)])
def test_a_token_that_differs_ends_all_at_once(k, place, token, pairs, tmp_path, monkeypatch):
    """The last round was compared with nobody's; where a rank alone saw the end, the others waited for 300 s."""
    monkeypatch.setattr(launch, "PASS_SECONDS", 60.0)
    options = {"max_tokens": 12, "temperature": 0.0, "k": k, "logit_bias": [[0, -100.0], [EOS, -100.0]]}
    case = {"pair": pairs["qwen3"], "asks": [{"prompt": PROMPT, "options": options}]}
    began = time.monotonic()
    with pytest.raises(SpecdecError, match="the 2 machines wrote different tokens after"):
        together(2, [case], tmp_path, fault=f"other_token {place} {token}")
    assert time.monotonic() - began < 50


def other_weights(folder):
    """Another training of one matrix: file sizes and headers stay."""
    path = folder / "model.safetensors"
    tensors = mx.load(str(path))
    name = sorted(tensors)[len(tensors) // 2]
    mx.save_safetensors(str(path), tensors | {name: tensors[name] * 1.5})


def write_adapter(folder, scale=1.0):
    folder.mkdir(exist_ok=True)
    config = {"fine_tune_type": "lora", "num_layers": 1}
    config["lora_parameters"] = {"rank": 2, "scale": scale, "dropout": 0.0}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / ADAPTER), {"model.layers.1.self_attn.q_proj.lora_b": mx.zeros((2, 64))})


def swap_ids(folder):
    path = folder / "tokenizer.json"
    path.write_bytes(swap_two_ids(path.read_bytes()))


# What is another one on rank 1: the part that is named, the folder that is changed, and how.
CHANGES = {
    "target": ("target", other_weights),
    "draft": ("draft", other_weights),
    "adapter": ("draft_adapter", lambda folder: write_adapter(folder, 2.0)),
    "tokenizer": ("target", swap_ids),
}


@pytest.fixture
def places(pairs, tmp_path):
    """What load takes of a pair with an adapter, its folder, and a copy of that."""
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(Path(pairs["qwen3"]["target"]).parent, here)
    write_adapter(here / "draft_adapter")
    shutil.copytree(here, there)
    return {role: str(here / role) for role in ("target", "draft", "draft_adapter")}, here, there


@pytest.mark.parametrize("part", CHANGES)
def test_other_files_elsewhere_are_refused_by_name(part, places, tmp_path):
    """Another target on rank 1 gave wrong words, with exit code 0."""
    pair, here, there = places
    folder, change = CHANGES[part]
    change(there / folder)
    with pytest.raises(SpecdecError, match=f"the {part} is sha256 [0-9a-f]+ on rank 1, and sha256 [0-9a-f]+ on rank 0"):
        together(2, [{"pair": pair, "asks": ASKS[:1]}], tmp_path, fault=f"other_files {here} {there}")


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
    process = specdec("-n", "900", "-k", "3", SPECDEC_LOGIT_BIAS="0=-100 2=-100")
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
    fake.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift 2; done\n[ "$1" = off@127.0.0.1 ] && ')
    fake.write_text(fake.read_text() + 'echo "ssh: host off: no route" >&2 && exit 255\nshift\nexec sh -c "$*"\n')
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    found = []
    for name in ("other", "off"):
        command = [sys.executable, "-m", "specdec_cli", "doctor", "--hosts", f"here@127.0.0.1,{name}@127.0.0.1"]
        found.append(subprocess.run(command, env=os.environ | {"PATH": path, "HOME": str(tmp_path)}, **TEXT))
    assert found[0].returncode == 0
    assert "ranks\t2\tover ring" in found[0].stdout
    assert found[1].returncode == 1
    error, hint = found[1].stderr.splitlines()
    assert error == "error: rank 1 on off@127.0.0.1 did not start: ssh: host off: no route"
    assert hint.startswith("hint: this must work without a password")


def test_a_target_whose_heads_do_not_divide_is_refused_by_both_and_once(specdec):
    process = specdec("-n", "8", pair=["-p", "demo"])
    out, told = process.communicate(timeout=60)
    error = "error: specdec:demo/target has 1 and 3 heads a layer, which 2 machines cannot share\nhint: "
    assert (process.returncode, out) == (4, b"")
    assert told.decode().startswith(error)
    assert told.count(b"\n") == 2


@pytest.mark.macos
def test_only_rank_0_writes(specdec, tmp_path):
    trace = Path(tmp_path, "trace.jsonl")
    out, told = specdec("-n", "8", "-k", "2", "--json", "--trace", trace).communicate(timeout=60)
    assert told == b""
    assert out.decode() == trace.read_text()
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["event"] == "finish"
    one, other = events[0]["machine_bytes"]
    assert one == other > 0
