"""What the tests' device says is what the CPU says: a GPU that is wrong everywhere would agree with itself.

Without TEST_DEVICE=gpu the CPU is compared with itself, which shows that the comparison holds and can fail.
"""

from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

import specdec_cli

DEMO = Path(specdec_cli.__file__).parent / "demo"
ROWS = (1, 2, 3, 5, 9, 16)
TEXT = [(37 * i) % 2000 + 8 for i in range(sum(ROWS))]


def demo(part):
    network, _ = load_model(DEMO / part)
    network.set_dtype(mx.float32)
    return network


def read(network, place):
    """Logits [T, V] of TEXT, read in passes of ROWS on `place`."""
    with mx.stream(place):
        cache, found, begin = make_prompt_cache(network), [], 0
        for rows in ROWS:
            found.append(network(mx.array(TEXT[begin : begin + rows])[None], cache=cache)[0])
            begin += rows
        said = mx.concatenate(found)
        mx.eval(said)
    return said


def apart(one, other):
    """Largest difference of two readings, in deviations of the logits."""
    with mx.stream(mx.cpu):
        return float(mx.max(mx.abs(one - other)) / mx.std(other))


@pytest.mark.parametrize("part", ["target", "draft"])
def test_every_row_on_the_tests_device_is_the_cpus(part):
    network = demo(part)
    assert apart(read(network, mx.default_device()), read(network, mx.cpu)) < 1e-3


def test_the_comparison_fails_for_a_wrong_kernel():
    """Negative control: one matrix that is one per cent off."""
    network = demo("target")
    right = read(network, mx.cpu)
    network.layers[3].mlp.down_proj.weight *= 1.01
    assert apart(read(network, mx.default_device()), right) > 1e-3
