"""What is kept on this machine: nothing is missing from the list, and each command removes what it stands beside."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import platformdirs
import pytest

from specdec_cli.apps.doctor.findings import kept_here, places
from specdec_cli.session.disk_entries import disk_cache_folder

PACKAGE = Path(__file__).parents[4] / "specdec_cli"


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SPECDEC_MODELS", "SPECDEC_CONFIG", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_everything_that_the_package_writes_is_in_the_list(home):
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    written = set(re.findall(r'user_\w+_path\("specdec"\) / "([\w.]+)"', source))
    for folder in ("chats", "heads", "tuned"):
        (platformdirs.user_data_path("specdec") / folder / "one").mkdir(parents=True)
    listed = {part for _, paths, _ in places() for path in paths for part in path.parts}
    assert {"chats", "tuned", "costs.json", "config.toml"} <= written and written - listed == set()


def test_what_is_there_has_its_size_and_the_command_that_removes_it(home, specdec):
    """A training that was killed was listed nowhere, and no command removed it."""
    data, state = platformdirs.user_data_path("specdec"), platformdirs.user_state_path("specdec")
    files = ("tuned/mine/adapters", "tuned/.training-1/state", "chats/20260101.jsonl")
    for path in (*(data / name for name in files), state / "history", state / "a b", home / ".zfunc/_specdec"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    tuned = (data / "tuned").relative_to(home)
    found = {name: (size, command) for name, size, command in kept_here()}
    assert {"chats", "typed lines", "tuned", "stopped trainings", "completion"} <= found.keys()
    assert found["tuned"] == ("1 kB", f"specdec rm NAME (in ~/{shlex.quote(str(tuned))})")
    assert found["stopped trainings"][1] == f"rm -r ~/{shlex.quote(str(tuned / '.training-1'))}"
    removed = [shlex.split(command)[-1] for _, command in found.values() if command.startswith("rm ")]
    assert all(Path(path).expanduser().exists() for path in removed)
    shown = specdec("doctor")[1]
    assert "kept here\tsize\tremoved by\n" in shown and "chats\t1 kB\tspecdec chats delete --all" in shown


def test_what_was_read_is_told_with_its_size_and_one_command_removes_it(home, specdec):
    folder = disk_cache_folder()
    folder.mkdir(parents=True)
    (folder / "f-1.safetensors").write_bytes(b"x" * 3000)
    ((size, command),) = [row[1:] for row in kept_here() if row[0] == "disk cache"]
    assert size == "3 kB" and command.startswith("specdec rm disk-cache ")
    assert "3 kB of conversations that were read: specdec rm disk-cache removes them" in specdec("pairs")[2]
    assert specdec("rm", "disk-cache", "-y")[0] == 0 and not folder.exists()
    assert specdec("rm", "disk-cache", "-y")[0] == 0
    assert "conversations that were read" not in specdec("pairs")[2]
