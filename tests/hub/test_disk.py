"""A disk that is too small, full or for reading only: both numbers, no traceback, no complete file lost."""

from __future__ import annotations

import os
import subprocess

import pytest

from fakes.hub_client import ask
from fakes.hub_model import NAME, PULL, model

pytestmark = pytest.mark.slow  # a server, and a process for each question


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
