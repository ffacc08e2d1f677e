"""Removing models: what was announced is freed, and other commits lose nothing."""

from __future__ import annotations

import os
import subprocess

import pytest

from fakes.hub_client import ask
from fakes.hub_model import (
    LOCATE,
    MODEL_BYTES,
    NAME,
    PULL,
    SHARD_BYTES,
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
        f"Removal(name='{NAME}', commits=('{commit}',), kept_commits=(), freed_bytes={before})"
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
    code = f"p = hub.removal('org/tiny', '{old}')\nresult = [p.commits, p.kept_commits, p.freed_bytes, hub.remove(p)]"
    freed = SHARD_BYTES + 4
    assert ask(server, home, code) == [[old], [new], freed, freed]
    assert before - blob_bytes(home) == freed
    assert held(home, new) == expected(newer)
    assert ask(server, home, LOCATE) == new
    assert ask(server, home, VERIFY) == []


def test_removing_what_is_not_here_says_so(server, home):
    assert ask(server, home, "hub.removal('org/tiny')") == unavailable(
        f"{NAME} is not in the model cache {home}/hub", "specdec pairs lists all"
    )
    commit = server.commit(NAME, model())
    ask(server, home, PULL)
    assert ask(server, home, "hub.removal('org/tiny', 'f00')") == unavailable(
        f"{NAME} has no commit f00 here, only {commit[:7]}", f"specdec rm {NAME}"
    )


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 5 MB, which only root can make."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "t", folder]).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_model_bigger_than_the_disk_is_refused_with_both_numbers_before_the_first_byte(server, small_disk):
    server.commit(NAME, model())
    answer = ask(server, small_disk, PULL)
    assert answer == {
        "error": "DoesNotFit",
        "message": f"{NAME} needs 6.3 MB, and the disk of {small_disk}/hub has 5.2 MB free",
        "hint": "free some space (specdec rm NAME), or set HF_HOME to a folder on a bigger disk",
        "exit": 5,
    }
    assert server.calls() == ["GET /api/models/org/tiny"]


def test_free_space_is_compared_for_both_models_together(server, home):
    """Injected free space, so that it runs without root as well."""
    for name in ("org/tiny", "org/draft"):
        server.commit(name, model())
    code = (
        "from specdec_cli.hub import download; download.free_bytes = lambda: 7_000_000\n"
        "both = [hub.resolve('org/tiny'), hub.resolve('org/draft')]\n"
        "hub.check_space(both[:1]); hub.check_space(both)"
    )
    assert ask(server, home, code) == {
        "error": "DoesNotFit",
        "message": f"org/tiny and org/draft need 12.6 MB, and the disk of {home}/hub has 7.0 MB free",
        "hint": "free some space (specdec rm NAME), or set HF_HOME to a folder on a bigger disk",
        "exit": 5,
    }
