"""Removing models: what was announced is freed, and other commits lose nothing."""

from __future__ import annotations

import pytest

from fakes.hub_client import ask
from fakes.hub_model import (
    LOCATE,
    MODEL_BYTES,
    MODEL_FILES,
    NAME,
    PULL,
    SHARD_BYTES,
    TWO,
    VERIFY,
    blob_bytes,
    expected,
    held,
    model,
    repository,
    shard,
    unavailable,
)

pytestmark = pytest.mark.slow  # a server, and a process for each question


PLAN = "plan = hub.removal('org/tiny'{}); result = plan"


def test_removing_a_model_frees_what_it_said(server, home):
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    (repository(home) / "blobs" / "dead.incomplete").write_bytes(b"x" * 1000)
    before = blob_bytes(home)
    assert before == MODEL_BYTES + 1000
    assert ask(server, home, PLAN.format("")) == (
        f"Removal(name='{NAME}', commits=('{commit}',), kept_commits=(), freed_bytes={before}, "
        "shared_bytes=0, shared_files=())"
    )
    assert blob_bytes(home) == before
    assert ask(server, home, "result = hub.remove(hub.removal('org/tiny'))") == before
    assert not repository(home).exists()


def test_removing_one_commit_keeps_what_the_other_shares(server, home):
    old = server.commit(NAME, model())
    ask(server, home, PULL)
    newer = model(two=shard(3), merges=b"c d\n")
    new = server.commit(NAME, newer)
    ask(server, home, PULL)
    before = blob_bytes(home)
    shared = [path for path in MODEL_FILES if path not in (TWO, "merges.txt")]
    code = f"p = hub.removal('org/tiny', '{old}')\nresult = [p.commits, p.kept_commits, p.freed_bytes, "
    code += "p.shared_bytes, p.shared_files, hub.remove(p)]"
    freed, kept = SHARD_BYTES + 4, sum(len(newer[path]) for path in shared)
    assert ask(server, home, code) == [[old], [new], freed, kept, shared, freed]
    assert before - blob_bytes(home) == freed
    assert held(home, new) == expected(newer)
    assert ask(server, home, LOCATE) == new
    assert ask(server, home, VERIFY) == []


def test_removing_what_is_not_here_says_so(server, home):
    assert ask(server, home, "hub.removal('org/tiny')") == unavailable(
        f"{NAME} is not in the model cache {home}/hub", "specdec pairs"
    )
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    assert ask(server, home, "hub.removal('org/tiny', 'f00')") == unavailable(
        f"{NAME} has no commit f00 here, only {commit[:7]}", f"specdec rm {NAME}"
    )
