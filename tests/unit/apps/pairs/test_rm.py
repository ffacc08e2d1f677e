"""`specdec rm` as a person types it: it says what else uses the files, and asks."""

from __future__ import annotations

import json
import re
import sys

import pexpect
import pytest

from fakes.models import TINY
from fakes.world import BIG, MODELS, SMALL

pytestmark = pytest.mark.slow


def test_rm_says_what_else_uses_the_files_asks_and_frees_them(pulled):
    held = sum(path.stat().st_size for name in (BIG, SMALL) for path in pulled.cached(name).glob("blobs/*"))
    asked = pulled("rm", "tiny")
    assert asked.code == 2
    assert asked.errors() == [
        f"there is no terminal to ask on: Free {held / 1e3:.0f} kB?",
        "add --yes to go on without asking",
    ]
    assert asked.err.splitlines()[:2] == ["org/big: 388 kB; also used by odd", "org/small: 388 kB"]
    assert pulled.cached(BIG).exists()
    done = pulled("rm", "tiny", "--yes")
    assert (done.code, done.err.splitlines()[2:]) == (
        0,
        [
            f"freed {held / 1e3:.0f} kB",
            "tiny is still the default pair, and cannot answer: specdec pairs use NAME",
        ],
    )
    assert not pulled.cached(BIG).exists() and not pulled.cached(SMALL).exists()
    again = pulled("rm", "tiny", "--yes")
    assert (again.code, again.errors()[0]) == (3, f"org/big is not in the model cache {pulled.root}/hf/hub")


def test_rm_asks_a_person_and_a_no_removes_nothing(pulled):
    command = [sys.executable, "-m", "specdec_cli", "rm", BIG]
    child = pexpect.spawn(command[0], command[1:], env=pulled.environment(), encoding="utf-8", timeout=120)
    child.expect(r"org/big: 388 kB; also used by tiny, odd")
    child.expect(r"Free 388 kB\? \[y/N\]")
    child.sendline("n")
    child.expect("nothing was done")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert pulled.cached(BIG).exists()


def test_rm_of_a_pinned_commit_leaves_what_another_commit_shares(world, folders):
    (old,) = world.hub.repos[BIG]
    files = {path.name: path.read_bytes() for path in folders[BIG].iterdir()}
    world.hub.commit(BIG, files | {"config.json": json.dumps({**TINY, "new": 1}).encode()})
    pinned = f'\n[pairs.pinned]\ntarget = "{BIG}"\ntarget_revision = "{old}"\n'
    world.models.write_text(MODELS + pinned)
    assert (world("pull", "tiny").code, world("pull", "pinned").code) == (0, 0)
    done = world("rm", "pinned", "--yes")
    (new,) = (path.name for path in world.cached(BIG).glob("snapshots/*"))
    assert new != old
    line = rf"org/big: \d+ B; what commit {new[:7]} shares will stay; also used by tiny, odd"
    assert re.fullmatch(line, done.err.splitlines()[0])
    assert world.without_network("run", "-p", "tiny", "-n", "2", "hi").code == 0


def test_ctrl_c_at_the_question_removes_nothing_and_exits_130(pulled):
    """It was printed as `error: Abort:` with exit code 1."""
    command = ["-m", "specdec_cli", "rm", BIG]
    child = pexpect.spawn(sys.executable, command, env=pulled.environment(), encoding="utf-8", timeout=120)
    child.expect(r"\[y/N\]")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, "error" in child.before) == (130, False)
    assert pulled.cached(BIG).exists()
