"""The device of the tests: of ours and of mlx-lm's decoding, which is what many are compared with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

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
