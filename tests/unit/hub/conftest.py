"""A cache for in-process tests; a Hub on loopback with a person who asks it, and a home beside what is not its own."""

from __future__ import annotations

import shutil

import pytest
from huggingface_hub import constants

from fakes.hub_client import Person
from fakes.hub_server import HubServer


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty Hugging Face cache, beside a file that nothing may touch; the Hub is https://hub.test."""
    folder = tmp_path / "home" / "hub"
    folder.mkdir(parents=True)
    (tmp_path / "victim.txt").write_text("a person's own words")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.test")
    yield folder
    assert (tmp_path / "victim.txt").read_text() == "a person's own words"


@pytest.fixture
def server():
    with HubServer() as hub:
        yield hub


@pytest.fixture
def home(tmp_path):
    """HF_HOME; around it a file and a folder that no attack may touch."""
    (tmp_path / "victim.txt").write_text("a person's own words")
    (tmp_path / "neighbour").mkdir()
    (tmp_path / "home" / "hub").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    with HubServer() as hub, Person(hub, tmp_path_factory.mktemp("person"), HF_HUB_DISABLE_PROGRESS_BARS="1") as person:
        yield hub, person


@pytest.fixture
def hub(both):
    """Nothing is published there, and nothing is wrong with it."""
    hub = both[0]
    hub.forget()
    hub.repos.clear()
    hub.refs.clear()
    return hub


@pytest.fixture
def person(both):
    """One process for all tests of a file; its cache begins empty."""
    shutil.rmtree(both[1].home / "hub", ignore_errors=True)
    return both[1]
