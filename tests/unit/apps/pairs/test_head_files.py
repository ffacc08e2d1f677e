"""Heads in files of their own, as converters place them, over a real Hub on loopback, as real processes."""

from __future__ import annotations

import json

import pytest
from safetensors.numpy import save

from fakes.counting import counting_folder, counting_tensors
from fakes.gemma import agreeing_folders
from fakes.hub_server import HubServer
from fakes.world import World

pytestmark = pytest.mark.slow

TARGET = "org/counting"


def part(head):
    return {name: value for name, value in counting_tensors().items() if name.startswith("mtp.") == head}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """The target without its head, as the files of a repository."""
    folder = counting_folder(tmp_path_factory.mktemp("target") / "m", part(False))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """A Gemma 4 and its assistant, as the files of two repositories."""
    folders = agreeing_folders(tmp_path_factory.mktemp("gemma"))
    return [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]


@pytest.fixture
def world(tmp_path):
    with HubServer() as hub:
        yield World(hub, tmp_path)


@pytest.mark.parametrize("file", ["mtp.safetensors", "mtp/model.safetensors"])
def test_a_head_beside_its_target_is_checked_pulled_used_and_removed_with_it(world, target, file):
    world.hub.commit(TARGET, target | {file: save(part(True)), "other/model.safetensors": b"x" * 5000})
    done = world("check", "--target", TARGET, "--json")
    head = json.loads(done.out)["head"]
    assert (done.code, head["kind"], head["tensors"]) == (0, "mtp", 15)
    # Of the head's file its header came, and of the target's weights nothing.
    sent = world.hub.fetched()
    assert sent.get("model.safetensors", 0) < len(save(part(True))) and "other/model.safetensors" not in str(sent)
    done = world("pull", "--target", TARGET)
    assert done.code == 0, done.err
    asked = ("run", "--target", TARGET, "--drafter", "mtp", "-k", "3", "-n", "24", "--json", "hello")
    events = [json.loads(line) for line in world.without_network(*asked).out.splitlines()]
    assert events[0]["drafter"] == "mtp" and events[-1]["stats"]["draft_acceptance_rate"] > 0.8
    (folder,) = world.root.rglob("models--*/snapshots/*")
    assert (folder / file).is_file() and not (folder / "other").exists()
    row = next(row for row in json.loads(world("pairs", "--json").out) if row["name"] == "counting")
    assert row["size_bytes"] == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    (folder / file).unlink()
    done = world.without_network(*asked)
    assert done.code == 3 and f"is only partly here: 1 file missing, first {file}" in done.err
    assert world("pull", "--target", TARGET).code == 0 and (folder / file).is_file()
    assert world("rm", TARGET, "--yes").code == 0
    assert not list(world.root.rglob("models--*/blobs/*"))


def test_a_repository_that_holds_a_head_alone_in_such_a_file_is_a_draft(world, target):
    world.hub.commit(TARGET, target)
    config = json.loads(target["config.json"]) | {"model_type": "qwen3_5_mtp"}
    world.hub.commit("org/head", {"config.json": json.dumps(config).encode(), "mtp.safetensors": save(part(True))})
    done = world("pull", "--target", TARGET, "--draft", "org/head")
    assert done.code == 0, done.err
    asked = ("--target", TARGET, "--draft", "org/head", "--drafter", "model", "-k", "2", "-n", "12", "--json", "hello")
    events = [json.loads(line) for line in world.without_network("run", *asked).out.splitlines()]
    assert events[0]["drafter"] == "mtp" and events[-1]["stats"]["draft_n_accepted"] > 4


def test_an_assistant_is_checked_by_its_headers_pulled_used_and_removed(world, gemma):
    for name, files in zip((TARGET, "org/gemma-it-assistant"), gemma, strict=True):
        world.hub.commit(name, files)
    pair = ("--target", TARGET, "--draft", "org/gemma-it-assistant")
    done = world("check", *pair, "--json")
    assert (done.code, json.loads(done.out)["head"]["kind"]) == (0, "gemma4_assistant")
    assert world.hub.fetched().get("model.safetensors", 0) < len(gemma[1]["model.safetensors"]) / 2
    assert world("pull", *pair).code == 0
    done = world.without_network("run", *pair, "--drafter", "model", "-k", "2", "-n", "40", "--json", "hello")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert events[0]["drafter"] == "gemma4_assistant" and events[-1]["stats"]["draft_n_accepted"] > 4
    assert world("rm", "org/gemma-it-assistant", "--yes").code == 0
