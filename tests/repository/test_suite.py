"""The suite: a person's files and it leave each other alone, and its device is mlx-lm's as well."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import platformdirs
import pytest

import isolation

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


# The device of the tests: of ours and of mlx-lm's decoding, which is what many are compared with.


TESTS = Path(__file__).parents[1]
# A Mac, as far as a CPU can be one: its default device is the GPU until another is set. What computes there is a CPU.
MAC = """
import json, sys
import mlx.core as mx

default, streams, limits, true_stream = [mx.gpu], [], [], mx.new_thread_local_stream


def new_stream(device):
    streams.append("gpu" if device == mx.gpu else "cpu")
    return true_stream(mx.cpu)


mx.is_available = lambda device: True
mx.default_device = lambda: default[-1]
mx.set_default_device = default.append
mx.new_thread_local_stream = new_stream
mx.set_cache_limit = limits.append
import conftest, mlx_lm.generate

print(json.dumps([streams, "gpu" if mx.default_device() == mx.gpu else "cpu", limits]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "device", "limits"), [(None, "cpu", []), ("cpu", "cpu", []), ("gpu", "gpu", [1 << 28])]
)
def test_mlx_lms_decoding_computes_where_the_tests_do_on_a_mac(wanted, device, limits):
    """The bug: mlx-lm was imported before the device was set, so it computed on the GPU beside our CPU, for good.

    And each worker on the GPU may keep 256 MB of freed buffers, not most of a runner's memory.
    """
    given = {name: value for name, value in os.environ.items() if name != "TEST_DEVICE"}
    given |= {"PYTHONPATH": str(TESTS), **({"TEST_DEVICE": wanted} if wanted else {})}
    done = subprocess.run([sys.executable, "-c", MAC], capture_output=True, text=True, env=given, check=True)
    assert json.loads(done.stdout) == [[device], device, limits]


@pytest.mark.slow
@pytest.mark.skipif(mx.is_available(mx.gpu), reason="there is a GPU here")
@pytest.mark.parametrize(
    ("device", "code", "said"), [("gpu", 4, "mlx has no GPU here\nhint: TEST_DEVICE=cpu"), ("cpu", 0, "7 skipped")]
)
def test_without_metal_its_tier_is_skipped_and_a_runner_that_should_have_it_fails(device, code, said):
    words = ["-m", "pytest", "-n", "0", "-m", "metal", "tests/e2e/test_metal.py", "-k", "architecture"]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    given["TEST_DEVICE"] = device
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=given, cwd=TESTS.parent)
    assert done.returncode == code and said in done.stdout + done.stderr
