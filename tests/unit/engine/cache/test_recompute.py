"""Recurrent state after some of a pass's tokens: equal to having fed just these, with no weight read again."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map
from mlx_lm.models.cache import ArraysCache, make_prompt_cache

from conformance.architectures import architectures, tiny_network
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.cache.rollback import ANSWERED, Caches, readers_of

IDS = [3, 17, 5, 60, 8, 9, 22, 41]
RECURRENT = ["mamba2", "qwen3_5", "rwkv7", "lfm2", "falcon_h1"]


def fed(network, *passes):
    """Caches after these passes."""
    caches = Caches(network)
    for ids in passes:
        with caches.feeding(len(ids)):
            network(mx.array([ids]), cache=caches.layers)
    return caches


def states(caches):
    parts = [part for part in leaves(caches.layers) if type(part) is ArraysCache]
    return [np.array(array) for part in parts for array in part.cache if array is not None]


@pytest.mark.parametrize("kept", [1, 3, 5])
@pytest.mark.parametrize("name", RECURRENT)
def test_a_state_taken_back_is_that_of_the_kept_tokens_and_reads_no_projection_again(name, kept):
    """The projections' weights are made NaN before the recomputation: nothing of them is in the result."""
    network = tiny_network(architectures()[name], 1)
    expected = states(fed(network, IDS[:2], IDS[2 : 2 + kept]))
    caches = fed(network, IDS[:2], IDS[2:])
    mx.eval([part.state for part in caches.layers])
    for reader in readers_of(network, make_prompt_cache(network)):
        for module in reader.modules():
            if isinstance(module, ANSWERED) and not type(module).__name__.startswith("Conv"):
                module.update(tree_map(lambda weight: weight * mx.nan, module.parameters()))
    assert caches.rollback(2 + kept) == 2 + kept
    found = states(caches)
    assert expected and len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", RECURRENT)
def test_readers_are_modules_below_the_network(name):
    network = tiny_network(architectures()[name], 1)
    readers = readers_of(network, make_prompt_cache(network))
    inside = {id(module) for module in network.modules()} - {id(network)}
    assert readers and {id(reader) for reader in readers} <= inside
