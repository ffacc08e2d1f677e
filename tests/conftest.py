"""Law of the suite: offline, float32, deterministic; no setting of the user or of the caller leaks in, no file out.

TEST_DEVICE=gpu computes on the GPU; the CPU is the default on a Mac too. Only this process obeys it, no child.
"""

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import isolation

HOME = isolation.move_in()
# Before mlx is imported: TF32 would round float32 products on some devices.
os.environ["MLX_ENABLE_TF32"] = "0"
MACOS = "MACOS_FOLDER" in os.environ  # of tests/macos/stand_in.py
if "PYTEST_XDIST_WORKER" in os.environ and not MACOS:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores

# A shell starts what goes on in the background with Ctrl-C ignored, nohup with SIGHUP, and children inherit both.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)

import pytest
from hypothesis import settings

from specdec_cli.system import blas, machine

blas.load()  # before the fakes import mlx

import mlx.core as mx

# Before the fakes import mlx-lm, whose own decoding keeps the device that is the default then (mlx_lm/generate.py).
DEVICE = os.environ.get("TEST_DEVICE", "cpu")
if DEVICE == "gpu" and mx.is_available(mx.gpu):
    mx.set_default_device(mx.gpu)
    mx.set_cache_limit(256 << 20)  # each worker may keep 4.75 GB else, and runners have 7
else:
    mx.set_default_device(mx.cpu)

from fakes.counting import HEAD_CONFIG, NO_HEAD, counting_folder, counting_tensors, head_or_trunk
from fakes.models import TINY, tiny_folder
from fakes.raw_qwen import write_checkpoint

settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


def pytest_configure(config):
    if config.option.basetemp:
        isolation.open_folders.add(Path(config.option.basetemp).resolve())
    if DEVICE not in ("cpu", "gpu"):
        raise pytest.UsageError(f"TEST_DEVICE is {DEVICE}\nhint: TEST_DEVICE=cpu or TEST_DEVICE=gpu")
    if DEVICE == "gpu" and not mx.is_available(mx.gpu):
        raise pytest.UsageError("TEST_DEVICE is gpu, and mlx has no GPU here\nhint: TEST_DEVICE=cpu")


# Of what computes with arrays alone `sys`, `os` and files change nothing.
ARRAYS = tuple(Path(__file__).parent / folder for folder in ("laws", "conformance"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Where this machine stands in for a Mac, -m macos means the default tier as well, but for arrays alone."""
    for item in items:
        if MACOS and is_default(item) and not any(item.path.is_relative_to(folder) for folder in ARRAYS):
            item.add_marker("macos")


def is_default(item):
    return not any(item.get_closest_marker(tier) for tier in ("slow", "full", "real", "metal"))


# What an item of the default tier may not do, as the interpreter names it; other tiers may.
OUTSIDE = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "pty.spawn", "socket.bind"}
in_default_tier = False


def refuse_outside(event, arguments):
    if in_default_tier and event in OUTSIDE:
        raise AssertionError(f"{event} in the default tier; hint: mark the test slow")


class NoPrograms:
    """`subprocess` for `system.machine` in the default tier: on a Mac it starts `pmset` and `caffeinate`."""

    SubprocessError = subprocess.SubprocessError

    @staticmethod
    def run(command, **options):
        raise FileNotFoundError(command[0])

    Popen = run


sys.addaudithook(refuse_outside)
sys.addaudithook(isolation.refuse_writes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global in_default_tier
    in_default_tier = is_default(item)
    machine.subprocess = NoPrograms if in_default_tier else subprocess
    isolation.watching = True
    try:
        return (yield)
    finally:
        in_default_tier = isolation.watching = False


def pytest_runtest_setup(item):
    """Many tests of the tier `metal` are of other tiers, too, in which they run on any device."""
    metal = mx.metal.is_available() and mx.default_device() == mx.gpu
    if "metal" in item.config.option.markexpr and item.get_closest_marker("metal") and not metal:
        pytest.skip(f"Metal is what is tested, and this is {mx.default_device()}: TEST_DEVICE=gpu on a Mac")


@pytest.fixture(autouse=True)
def _home_of_this_test(monkeypatch):
    """No test reads what another one wrote, such as what rounds cost here."""
    monkeypatch.setenv("HOME", tempfile.mkdtemp(dir=HOME))


@pytest.fixture
def device_says(monkeypatch):
    """What the device says of itself from now on: `device_says(usable_bytes=1000)`."""
    from fakes.device import says

    return partial(says, monkeypatch)


@pytest.fixture
def machine_says(monkeypatch):
    """How much memory this machine has from now on, for the lists of pairs: `machine_says(16 * GB)`."""
    from specdec_cli.pairs import catalog, choose

    def says(physical_bytes):
        for module in (catalog, choose):
            monkeypatch.setattr(module, "physical_bytes", lambda: physical_bytes)

    return says


def pytest_unconfigure():
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory):
    """Folders (target, draft): tiny random models over one byte-level tokenizer; the draft is the target, perturbed."""
    root = tmp_path_factory.mktemp("pair")
    target = tiny_folder(root / "target", TINY, seed=1)
    draft = tiny_folder(root / "draft", TINY, seed=1, noise=0.05)
    return target, draft


@pytest.fixture(scope="session")
def counting_folders(tmp_path_factory):
    """Of a target that counts without a head, of its head, and of that target with its head."""
    root, tensors = tmp_path_factory.mktemp("counting"), counting_tensors()
    bare = counting_folder(root / "bare", head_or_trunk(tensors, False), NO_HEAD)
    head = write_checkpoint(root / "head", head_or_trunk(tensors, True), HEAD_CONFIG)
    return bare, head, counting_folder(root / "whole", tensors)


@pytest.fixture(scope="session")
def gemma_folders(tmp_path_factory):
    """Of a target over bytes, and of an assistant that agrees with it."""
    from fakes.gemma import agreeing_folders

    return agreeing_folders(tmp_path_factory.mktemp("gemma"))


def pytest_collection_finish(session):
    """What was imported stays: each collection by a test that counts memory would look through all of it."""
    gc.collect()
    gc.freeze()
