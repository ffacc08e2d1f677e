"""Tiny random networks: made of their seed, moved by noise, and saying different things."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.conformance.networks import tiny_network

NAMES = ["qwen3", "gemma3_text", "mamba2", "qwen3_5", "rwkv7"]


def weights(network):
    return {path: np.array(value.astype(mx.float32)) for path, value in tree_flatten(network.parameters())}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_float32_weights_and_another_others(name):
    found = architectures()[name]
    first, again, other = (weights(tiny_network(found, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[path], again[path]) for path in first)
    assert any(not np.array_equal(first[path], other[path]) for path in first)
    floats = [v for _, v in tree_flatten(tiny_network(found, 1).parameters()) if mx.issubdtype(v.dtype, mx.floating)]
    assert {value.dtype for value in floats} == {mx.float32}
