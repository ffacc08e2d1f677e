"""A Hub on loopback, and a home beside things that are none of its business."""

from __future__ import annotations

import pytest

from hub_server import HubServer


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
