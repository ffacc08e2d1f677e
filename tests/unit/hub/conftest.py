"""A cache for in-process tests; a Hub on loopback, and a home beside things that are none of its business."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

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
