"""The suite and a person's files: neither reads or writes the other's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from fakes import isolation

HOME = Path(os.environ["HOME"])  # of the session
CHILD = """
import platformdirs, os
from huggingface_hub import constants
print(os.path.expanduser("~"), constants.HF_HOME, *(getattr(platformdirs, f"user_{kind}_dir")("specdec") for kind in
      ("config", "cache", "state", "data", "log", "runtime")), sep="\\n")
"""
# None of these would change anything, were it let through: what they name is not there, or is.
WRITES = {
    "open for writing": lambda folder: (folder / "no-such-file").open("r+"),
    "os.open": lambda folder: os.open(folder / "no-such-file", os.O_WRONLY),
    "mkdir": lambda folder: folder.mkdir(),
    "rename from": lambda folder: (folder / "no-such-file").rename(HOME / "x"),
    "rename to": lambda folder: (HOME / "no-such-file").rename(folder / "no-such-file"),
    "remove": lambda folder: (folder / "no-such-file").unlink(),
    "rmdir": lambda folder: (folder / "no-such-file").rmdir(),
    "rmtree": lambda folder: shutil.rmtree(folder / "no-such-file"),
    "link": lambda folder: os.link(HOME / "no-such-file", folder / "no-such-file"),
    "symlink": lambda folder: folder.symlink_to(HOME),
    "chmod": lambda folder: (folder / "no-such-file").chmod(0o600),
    "truncate": lambda folder: os.truncate(folder / "no-such-file", 0),
}


@pytest.mark.parametrize("folder", [isolation.persons_home(), isolation.REPOSITORY])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_outside_the_temporary_folders_fails(write, folder):
    with pytest.raises(AssertionError, match="no temporary file"):
        WRITES[write](folder)


def test_a_write_by_a_link_out_of_a_temporary_folder_fails_but_the_link_can_be_removed(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(isolation.REPOSITORY / "no-such-file")
    with pytest.raises(AssertionError, match="no temporary file"):
        link.open("r+")
    link.unlink()


def test_temporary_files_and_devices_are_written(tmp_path):
    """Negative control: the hook lets through what tests may do."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    shutil.rmtree(tmp_path / "folder")
    Path(os.devnull).write_text("x")
    platformdirs.user_state_path("specdec", ensure_exists=True).joinpath("costs.json").write_text("{}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("turn", [1, 2])
def test_no_test_reads_what_another_one_wrote(turn):
    state = platformdirs.user_state_path("specdec", ensure_exists=True)
    assert state.is_relative_to(HOME) and list(state.iterdir()) == []
    (state / "costs.json").write_text("{}")


@pytest.mark.slow
def test_a_child_has_the_suites_home_and_none_of_a_persons_folders():
    environment = dict(os.environ)
    out = subprocess.run([sys.executable, "-c", CHILD], env=environment, check=True, capture_output=True, text=True)
    folders = out.stdout.splitlines()
    assert len(folders) == 8 and [folder for folder in folders if not Path(folder).is_relative_to(HOME)] == []
    personal = {name for name in environment if name.startswith(("SPECDEC_", "XDG_"))}
    assert personal - set(isolation.SUITE) == {"XDG_RUNTIME_DIR"}
