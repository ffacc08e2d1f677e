"""`pairs add --head-from`: a head out of the original repository, over a real Hub on loopback, as real processes."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import save

from fakes.counting import CONFIG, NO_HEAD, counting_folder, counting_tensors, in_fp8
from fakes.hub_server import HubServer
from fakes.raw_qwen import raw_tensors
from fakes.world import World

pytestmark = pytest.mark.slow

TARGET, ORIGINAL = "org/counting-4bit", "Org/Counting"
SHARDS = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def original():
    """The repository of the target with its head, in two files that the head's tensors are spread over."""
    tensors = counting_tensors()
    last = {name: value for name, value in tensors.items() if name.startswith("mtp.layers.") or "lm_head" in name}
    first = {name: value for name, value in tensors.items() if name not in last}
    index = {"weight_map": {name: SHARDS[name in last] for name in tensors}}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer.json": b"{}" * 50_000,
        SHARDS[0]: save(first),
        SHARDS[1]: save(last),
    }


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    tensors = {name: value for name, value in counting_tensors().items() if not name.startswith("mtp.")}
    return counting_folder(tmp_path_factory.mktemp("target") / "m", tensors, NO_HEAD)


@pytest.fixture
def world(tmp_path, target):
    with HubServer() as hub:
        hub.commit(TARGET, target)
        hub.commit(ORIGINAL, original())
        world = World(hub, tmp_path)
        assert world(*ADD, "--head-from", ORIGINAL).code == 0
        yield world


ADD = ("pairs", "add", "counting", "--yes", "--target", TARGET)
PULL = ("pull", "counting")


def kept(world):
    return world.root / ".local" / "share" / "specdec" / "heads"


def header_bytes(data):
    return 8 + int.from_bytes(data[:8], "little")


def test_pull_takes_the_head_and_nothing_else_and_run_draft_name_it(world):
    files = original()
    done = world(*PULL)
    assert done.code == 0, done.err
    head = sum(value.nbytes for name, value in counting_tensors().items() if name.startswith("mtp."))
    sent = world.hub.fetched()
    from_original = sum(sent.get(name, 0) for name in SHARDS)
    assert from_original <= head + sum(header_bytes(files[name]) for name in SHARDS)
    assert sent["config.json"] <= 2 * len(files["config.json"])  # the target's and the original's
    assert "model.safetensors.index.json" not in sent and sent["tokenizer.json"] < 50_000
    assert "15 tensors of" in done.err
    (folder,) = kept(world).iterdir()
    source = json.loads((folder / "source.json").read_text())
    (commit,) = world.hub.repos[ORIGINAL]
    assert (source["repository"], source["commit"]) == (ORIGINAL, commit)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert source["sha256"]["model.safetensors"] == digest
    text = world.models.read_text()
    assert f'head_from = "{ORIGINAL}"' in text and "draft" not in text
    world.hub.forget()
    asked = ("--drafter", "model", "-k", "3", "-n", "24", "--json", "hello")
    events = [json.loads(line) for line in world.without_network("run", "-p", "counting", *asked).out.splitlines()]
    assert events[0]["drafter"] == "mtp" and events[-1]["stats"]["draft_acceptance_rate"] > 0.8
    again = world(*PULL)
    assert again.code == 0 and f"the head of {ORIGINAL} is here" in again.err
    assert sum(world.hub.fetched().get(name, 0) for name in SHARDS) <= sum(header_bytes(files[n]) for n in SHARDS)
    gone = world("rm", "counting", "--yes")
    assert gone.code == 0 and f"head:{ORIGINAL}: " in gone.err and list(kept(world).iterdir()) == []


def test_a_changed_commit_brings_the_new_head_and_check_needs_no_tensor(world):
    assert world("check", "counting").code == 0
    assert not kept(world).exists()
    assert world(*PULL).code == 0
    (before,) = world.hub.repos[ORIGINAL]
    world.hub.commit(ORIGINAL, original() | {"README.json": b"{}"})
    assert world(*PULL).code == 0
    (folder,) = kept(world).iterdir()
    assert json.loads((folder / "source.json").read_text())["commit"] != before


FAULTS = {
    "cut": ({"kind": "cut", "at": 4_000}, "again"),
    "whole": ({"kind": "whole"}, "ignores byte ranges"),
    "416": ({"kind": "short", "at": 0}, "416"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_on_the_way_is_two_lines_and_leaves_nothing(world, fault):
    values, words = dict(FAULTS[fault][0]), FAULTS[fault][1]
    world.hub.fail(values.pop("kind"), f"GET .*{SHARDS[1]}", **values)
    done = world(*PULL)
    message, hint = done.errors()
    assert done.code == 3 and words in message + hint
    assert not kept(world).exists() or list(kept(world).iterdir()) == []


def with_head(change):
    tensors = counting_tensors()
    return save({name: value for name, value in tensors.items() if not name.startswith("mtp.")} | change)


WRONG = {
    "in FP8": (lambda: in_fp8(save(counting_tensors())), 3, "stores mtp.fc.weight as F8_E4M3"),
    "announced only": (
        lambda: with_head({}),
        3,
        "announces an MTP head (mtp_num_hidden_layers is 1), but none of its 1",
    ),
    "of another size": (lambda: with_head(raw_head()), 4, "reads states of [64], and the target's have 32"),
    "of another family": (
        lambda: with_head({"mtp.layers.0.mixer.q_proj.weight": np.zeros((2, 2), np.float32)}),
        4,
        "has a head of the Nemotron-H family",
    ),
}


def raw_head():
    return {name: value for name, value in raw_tensors().items() if name.startswith("mtp.")}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_head_that_cannot_be_used_is_refused_from_its_headers_and_leaves_nothing(world, wrong):
    make, code, words = WRONG[wrong]
    data = make()
    world.hub.commit(ORIGINAL, {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": data})
    done = world(*PULL)
    message, hint = done.errors()
    assert done.code == code and words in message and hint
    assert world.hub.fetched().get("model.safetensors", 0) <= header_bytes(data)
    assert not kept(world).exists() or list(kept(world).iterdir()) == []


def test_a_head_that_is_not_here_names_the_pull_that_brings_it(world):
    assert world("pairs", "remove", "counting", "--yes").code == 0  # whose head a pull of the target would bring
    assert world("pull", "--target", TARGET).code == 0
    assert world(*ADD, "--head-from", ORIGINAL).code == 0
    done = world("run", "-p", "counting", "hello")
    assert done.code == 3
    assert done.errors() == [
        f"counting is not downloaded: the head of {ORIGINAL} was not extracted yet",
        "specdec pull counting",
    ]


def test_a_repository_without_a_head_and_two_drafts_at_once_are_refused(world):
    assert world(*ADD, "--head-from", TARGET).code == 0
    done = world(*PULL)
    assert done.code == 3 and "holds no MTP head among" in done.errors()[0]
    done = world(*ADD, "--draft", TARGET, "--head-from", ORIGINAL)
    assert done.code == 2 and "both name a draft" in done.errors()[0]


def test_models_toml_names_it_as_head_from(world):
    entry = f'target = "{TARGET}"\nhead_from = "{ORIGINAL}"'
    world.models.write_text(f"schema_version = 1\n[pairs.mine]\n{entry}\n")
    assert world("pull", "mine").code == 0
    row = next(row for row in json.loads(world("pairs", "--json").out) if row["name"] == "mine")
    assert row["downloaded"] and row["draft"] == f"head:{ORIGINAL}"
    world.models.write_text(f'schema_version = 1\n[pairs.mine]\n{entry}\ndraft = "{TARGET}"\n')
    done = world("pull", "mine")
    assert done.code == 2 and "which both name a draft" in done.errors()[0]


@pytest.mark.full
def test_bench_takes_it(world, tmp_path):
    assert world(*PULL).code == 0
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one two three\nseven eight\n")
    pair = ("-p", "counting")
    asked = ("-k", "0-1", "--prompts", prompts, "-n", "8", "--raw", "--time-budget", "4s", "--json")
    done = world.without_network("bench", *pair, *asked)
    assert done.code in (0, 130), done.err
    arms = [sample["arm"] for sample in json.loads(done.out)["samples"]]
    assert {arm["contender"]["drafter"] for arm in arms if arm["k"]} == {"mtp"}
