"""The tier `metal`: kernels as each chip has them, and whole commands. What a CPU can show of it is in `full`, too."""

import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.utils import load_model

import specdec_cli
from fakes.packed import packed_folder
from isolation import persons_home
from specdec_cli.engine import device

ROOT, DEMO = Path(__file__).parents[2], Path(specdec_cli.__file__).parent / "demo"
METAL = device.backend() == "metal"
pytestmark = pytest.mark.metal
# Metal's kernels as for each chip; and under its own validation, which aborts at an invalid call.
SETTINGS = {
    "own": {},
    **{chip: {"MLX_METAL_GPU_ARCH": f"applegpu_{chip}"} for chip in ("g13g", "g14s", "g15s", "g16g", "g15d")},
    "validated": {"METAL_DEVICE_WRAPPER_TYPE": "1", "METAL_DEBUG_ERROR_MODE": "0"},
}
SUITES = "tests/conformance/test_gpu.py", "tests/laws/test_conformance.py"
RELEASED = "--target", "mlx-community/Qwen3-1.7B-4bit", "--draft", "mlx-community/Qwen3-0.6B-4bit"


def succeed(module, *words, **settings):
    """Run a module of Python in a process of its own, on the device that it takes by itself."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=own | settings, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Options that name the demo pair in 4 bits; with bfloat16, at which a CPU is a hundred times slower, on Metal."""
    root = tmp_path_factory.mktemp("packed")
    for part in ("target", "draft"):
        packed_folder(root / part, DEMO / part, group_size=64, dtype="bfloat16" if METAL else "float32")
    return "--target", root / "target", "--draft", root / "draft"


@pytest.mark.full
def test_one_pass_gives_the_same_bits_every_time(packed):
    network, _ = load_model(packed[1])
    first, *others = (network(mx.arange(8, 24)[None]) for _ in range(20))
    assert all(mx.array_equal(first, other) for other in others), mx.device_info()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.full] * (name == "own")) for name in SETTINGS])
def test_the_selftest_a_packed_pair_and_every_architecture_pass(name, packed, tmp_path):
    """A CPU, whose slow tier has every architecture, reads one prompt."""
    few = tmp_path / "prompts.txt"
    few.write_text("def f(x):\n")
    succeed("specdec_cli", "doctor", "--selftest", **SETTINGS[name])
    less = () if METAL else ("-n", 8, "--prompts", few)
    succeed("specdec_cli", "audit", *packed, "-k", "1,4,8", *less, **SETTINGS[name])
    if METAL:
        succeed("pytest", "-n", 3, "-m", "slow and not full", *SUITES, **SETTINGS[name])


@pytest.mark.timeout(3600)
def test_a_released_pair_answers_and_is_lossless():
    """Fetches 1.3 GB once."""
    hub = {"HF_HUB_OFFLINE": "0", "HF_HOME": str(persons_home() / ".cache/huggingface")}
    for command in (["pull"], ["run", "-n", 200, "What is a hash table?"], ["audit", "-k", "1,4,8"]):
        succeed("specdec_cli", *command, *RELEASED, **hub)
