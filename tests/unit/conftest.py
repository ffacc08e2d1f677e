"""A Hub on loopback with tiny models, homes in which `specdec` finds it, and terminals."""

from __future__ import annotations

import io
import shutil

import pyte
import pytest

from fakes.command import Command
from fakes.hub_server import HubServer
from fakes.models import TINY, other_letters, tiny_folder
from fakes.ui_script import Terminal
from fakes.world import BIG, MODELS, ODD, SMALL, World
from specdec_cli.terminal.panel import status


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


@pytest.fixture(scope="session")
def endless(tmp_path_factory):
    """A model that never stops, slow enough to be stopped."""
    config = TINY | {"max_position_embeddings": 100_000}
    return str(tiny_folder(tmp_path_factory.mktemp("long") / "model", config, seed=1, endless=True))


@pytest.fixture
def terminal():
    """One of 80 columns and 24 rows, with a screen behind it."""
    made = Terminal(80, 24)
    yield made
    made.close()


@pytest.fixture
def drawn(monkeypatch):
    """Makes a screen of so many columns, and the stream that the status line takes for it: (screen, stream, feed)."""

    def make(columns):
        screen = pyte.Screen(columns, 9)
        monkeypatch.setattr(status, "can_draw", lambda _: True)
        monkeypatch.setattr(status, "terminal_size", lambda _: (screen.columns, 9))
        return screen, io.StringIO(), pyte.Stream(screen)

    monkeypatch.setattr(status, "TICK_SECONDS", 1000.0)
    return make


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    """`specdec` in this process, in a home of its own."""
    return Command(tmp_path, monkeypatch, capsys)
