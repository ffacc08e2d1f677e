"""Links: the cache removes nothing outside of it, and a cache without links works as well."""

from __future__ import annotations

import pytest

from fakes.hub_client import ask, tree

pytestmark = pytest.mark.slow  # a server, and a process for each question


NAME = "org/tiny"
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w" * 5000}
PULL = "result = hub.fetch(hub.resolve('org/tiny')).name"
LOCATE = "result = hub.locate('org/tiny').name"


@pytest.fixture
def snapshot(server, home):
    commit = server.commit(NAME, FILES)
    assert ask(server, home, PULL) == commit
    return home / "hub" / "models--org--tiny" / "snapshots" / commit


def lead_out(home, path):
    """`path` becomes a link to a file outside the cache."""
    path.unlink()
    path.symlink_to(home.parent / "victim.txt")


def test_removing_one_commit_removes_no_file_that_its_links_lead_to(server, home, snapshot):
    """The library removes what a snapshot's links lead to, wherever that is."""
    server.commit(NAME, FILES | {"config.json": b'{"new": 1}'})
    ask(server, home, PULL)
    lead_out(home, snapshot / "config.json")
    before = tree(home.parent, home / "hub")
    answer = ask(server, home, f"hub.remove(hub.removal('org/tiny', '{snapshot.name}'))")
    assert (answer["exit"], "victim.txt of org/tiny lies outside the model cache" in answer["message"]) == (3, True)
    assert tree(home.parent, home / "hub") == before
    ask(server, home, "hub.remove(hub.removal('org/tiny'))")  # all of it: links are removed, not what they lead to
    assert tree(home.parent, home / "hub") == before
    assert not snapshot.exists()


def test_a_cache_without_links_holds_the_same_files_and_is_compared_as_well(server, home):
    """Some disks know no symbolic links: a file then lies in the snapshot itself."""
    commit = server.commit(NAME, FILES)
    plain = {"HF_HUB_DISABLE_SYMLINKS": "1"}
    assert ask(server, home, PULL, **plain) == commit
    snapshot = home / "hub" / "models--org--tiny" / "snapshots" / commit
    assert {path.name: path.read_bytes() for path in snapshot.iterdir() if not path.is_symlink()} == FILES
    server.forget()
    assert ask(server, home, PULL, **plain) == commit
    assert server.fetched() == {}
    (snapshot / "model.safetensors").write_bytes(b"x" * 5000)
    code = "result = [x.path for x in hub.verify(hub.resolve('org/tiny'))]"
    assert ask(server, home, code, **plain) == ["model.safetensors"]
    assert ask(server, home, PULL, **plain) == commit
    assert (snapshot / "model.safetensors").read_bytes() == FILES["model.safetensors"]
