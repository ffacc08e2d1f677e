"""A Hub on loopback with tiny models, and homes in which `specdec` finds it."""

from __future__ import annotations

import shutil

import pytest

from fakes.command import Command
from fakes.hub_server import HubServer
from fakes.models import other_letters, tiny_folder
from fakes.world import BIG, MODELS, ODD, SMALL, World


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    made = {BIG: tiny_folder(root / "big", seed=1), SMALL: tiny_folder(root / "small", seed=1, noise=0.05)}
    made[ODD] = tiny_folder(root / "odd", seed=1)
    tokenizer = made[ODD] / "tokenizer.json"
    tokenizer.write_bytes(other_letters(tokenizer.read_bytes()))
    return made


@pytest.fixture
def world(tmp_path, folders):
    with HubServer() as hub:
        for name, folder in folders.items():
            hub.commit(name, folder)
        world = World(hub, tmp_path)
        world.models.write_text(MODELS)
        yield world


@pytest.fixture(scope="session")
def home_after_pull(tmp_path_factory, folders):
    """A home in which `tiny` was pulled and became the default."""
    with HubServer() as hub:
        for name, folder in folders.items():
            hub.commit(name, folder)
        world = World(hub, tmp_path_factory.mktemp("pulled"))
        world.models.write_text(MODELS)
        assert world("pull", "tiny").code == 0
        yield world.root


@pytest.fixture
def pulled(world, home_after_pull):
    """The world after `pull tiny`: a commit's name depends on its contents' order only, so homes can be copied."""
    shutil.copytree(home_after_pull, world.root, symlinks=True, dirs_exist_ok=True)
    return world


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    """`specdec` in this process, in a home of its own."""
    return Command(tmp_path, monkeypatch, capsys)
