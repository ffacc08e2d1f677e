"""All caches of a network moved together: lengths, snapshots, failures, states. Any history is in tests/laws."""

from itertools import pairwise

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_map
from mlx_lm.models.cache import ArraysCache, make_prompt_cache

from conformance.architectures import architectures, tiny_network
from specdec_cli.core.errors import SpecdecError
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.cache.rollback import Caches, common_prefix, readers_of

TEXT = [3 + (i * i * 7 + i) % 60 for i in range(90)]
KINDS = {"qwen3": "trimmed", "gemma3_text": "window", "llama4": "chunks", "mamba2": "state", "qwen3_5": "both"}


@pytest.fixture(scope="module", params=KINDS)
def network(request):
    return tiny_network(architectures()[request.param], 1)


def feed(caches, network, ids):
    with caches.feeding(len(ids)):
        return network(mx.array([ids]), cache=caches.layers)[0]


def fresh(network, ids):
    return np.array(network(mx.array([ids]), cache=make_prompt_cache(network))[0, -1])


@pytest.mark.parametrize("kept", [40, 41, 44])
def test_within_the_last_pass_every_length_is_reached_exactly(network, kept):
    caches = Caches(network)
    feed(caches, network, TEXT[:40])
    feed(caches, network, TEXT[40:45])
    assert caches.rollback(kept) == caches.length == kept
    logits = feed(caches, network, [7])
    np.testing.assert_allclose(np.array(logits[-1]), fresh(network, [*TEXT[:kept], 7]), atol=2e-3)


def test_no_place_in_what_was_taken_back_is_returned_to(network):
    caches = Caches(network)
    feed(caches, network, TEXT[:20])
    feed(caches, network, TEXT[20:25])
    caches.snapshot()
    kept = caches.rollback(22)
    text = [*TEXT[:kept], *(3 + 11 * i % 60 for i in range(60 - kept))]
    for at in range(kept, 60, 8):
        feed(caches, network, text[at : at + 8])
        caches.rollback(caches.length)
    reached = caches.rollback(26)
    logits = feed(caches, network, text[reached:30])
    np.testing.assert_allclose(np.array(logits[-1]), fresh(network, text[:30]), atol=2e-3)


def test_a_layer_that_takes_back_less_is_an_error(monkeypatch):
    """mlx-lm's trim_prompt_cache returns 0 and goes on: its loop then emits wrong text without a word."""
    network = tiny_network(architectures()["qwen3"], 1)
    caches = Caches(network)
    feed(caches, network, TEXT[:5])
    monkeypatch.setattr(caches.layers[0], "trim", lambda tokens: tokens - 1)
    with pytest.raises(SpecdecError, match="a KVCache took back 1 of 2 tokens"):
        caches.rollback(3)
    assert caches.length == 0


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_a_common_prefix_is_the_longest_start_that_both_share(a, b):
    shared = common_prefix(a, b)
    assert a[:shared] == b[:shared] and shared <= min(len(a), len(b))
    assert shared == min(len(a), len(b)) or a[shared] != b[shared]


@pytest.mark.parametrize("kept", [2, 3, 5, 12])
def test_as_many_snapshots_stay_as_asked_for_and_the_newest_two_always(kept):
    network = tiny_network(architectures()["mamba2"], 1)
    caches = Caches(network)
    caches.kept_snapshots = kept
    lengths = []
    for size in (1000, 60, 60, 500, 60, 60, 900, 60, 60):
        feed(caches, network, [3] * size)
        caches.snapshot()
        lengths.append(caches.length)
    *found, _ = caches.ends
    assert len(found) == min(kept, len(lengths)) and found[-2:] == lengths[-2:]
    if kept == 5:  # spread out, but for the newest: those of the last five are 1,680 tokens from the start
        assert max(after - before for before, after in pairwise([0, *found])) <= 1000


# Recurrent state after some of a pass's tokens: equal to having fed just these, with no weight read again.


IDS = [3, 17, 5, 60, 8, 9, 22, 41]
RECURRENT = ["mamba2", "qwen3_5", "rwkv7", "lfm2", "falcon_h1", "prism_hadamard_qwen35"]


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
    readers = readers_of(network, make_prompt_cache(network))
    assert readers and all(reader is not network for reader in readers)
    for reader in readers:
        for module in reader.modules():
            if isinstance(module, nn.Linear) or "scales" in module:
                floats = {name: weight for name, weight in module.items() if mx.issubdtype(weight.dtype, mx.floating)}
                module.update(tree_map(lambda weight: weight * mx.nan, floats))
    assert caches.rollback(2 + kept) == 2 + kept
    found = states(caches)
    assert expected and len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
