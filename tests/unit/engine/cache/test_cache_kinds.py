"""Facts about each kind of cache, against arrays that were really written."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from specdec_cli.engine.cache.cache_kinds import (
    KEPT_SNAPSHOTS,
    KVQuantization,
    bytes_at,
    put_back,
    rolling,
    state_of,
)
from specdec_cli.engine.cache.window import WindowKVCache

MAKERS = {
    "KVCache": KVCache,
    "WindowKVCache": lambda: WindowKVCache(16),
    "ChunkedKVCache": lambda: ChunkedKVCache(16),
    "a ring nobody knows": lambda: RotatingKVCache(16),
}


def rows(first, tokens, width=4):
    """[1, 1, tokens, width]: each position holds its own number."""
    return mx.broadcast_to(
        mx.arange(first, first + tokens).astype(mx.float32)[None, None, :, None], (1, 1, tokens, width)
    )


def feed(cache, first, tokens):
    return np.array(cache.update_and_fetch(rows(first, tokens), rows(first, tokens))[0])


def test_a_ring_becomes_a_window_and_only_plain_caches_are_quantized():
    kv = KVQuantization(8, 32)
    kinds = {KVCache: QuantizedKVCache, ArraysCache: ArraysCache, ChunkedKVCache: ChunkedKVCache}
    layers = [KVCache(), ArraysCache(2), ChunkedKVCache(8)]
    assert [type(rolling(layer, kv)) for layer in layers] == list(kinds.values())
    assert all(rolling(layer, None) is layer for layer in layers)
    window = rolling(CacheList(RotatingKVCache(16)), None).caches[0]
    assert type(window) is WindowKVCache and window.max_size == 16


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=10)
@given(before=st.integers(1, 20), after=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_cache_that_is_put_back_goes_on_as_one_that_never_left(name, before, after):
    """Also a second time from the same state, and whatever was written in between."""
    ours, never = MAKERS[name](), MAKERS[name]()
    for cache in (ours, never):
        feed(cache, 0, before)
    state = state_of(ours)
    expected = feed(never, before, 2)
    for _ in range(2):
        at = before
        for tokens in after:
            feed(ours, 1000 + at, tokens)
            at += tokens
        put_back([ours], [state])
        np.testing.assert_array_equal(feed(ours, before, 2), expected)
        put_back([ours], [state])


@pytest.mark.parametrize("tokens", [256, 257])
def test_bytes_of_a_plain_cache_are_those_it_really_has(tokens):
    cache = KVCache()
    for first in range(0, tokens, 64):
        feed(cache, first, min(64, tokens - first))
    assert bytes_at(cache, tokens, 64, 4) == cache.keys.nbytes + cache.values.nbytes
    assert bytes_at(cache, tokens, 64, 2) * 2 == bytes_at(cache, tokens, 64, 4)


def test_a_state_is_counted_with_the_one_before_it_and_its_snapshots_and_an_unused_cache_not_at_all():
    cache = ArraysCache(1)
    cache[0] = mx.zeros((1, 8))
    assert bytes_at(cache, 10_000, 64, 2) == (2 + KEPT_SNAPSHOTS) * 32
    assert bytes_at(KVCache(), 10_000, 64, 2) == 0
