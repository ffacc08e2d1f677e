"""Facts about each kind of cache, against arrays that were really written."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from specdec_cli.core.request import MAX_ROWS
from specdec_cli.engine.cache.cache_kinds import (
    KEPT_SNAPSHOTS,
    CacheSize,
    KVQuantization,
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
    size = CacheSize.of(cache)
    assert size.nbytes(tokens, 64, 4) == cache.keys.nbytes + cache.values.nbytes == 2 * size.nbytes(tokens, 64, 2)


def test_a_state_is_counted_with_the_one_before_it_and_its_snapshots_and_an_unused_cache_not_at_all():
    cache = ArraysCache(1)
    cache[0] = mx.zeros((1, 8))
    assert CacheSize.of(cache).nbytes(10_000, 64, 2) == (2 + KEPT_SNAPSHOTS) * 32
    assert CacheSize.of(KVCache()).nbytes(10_000, 64, 2) == 0


# A sliding window against the set of positions that a ring of that size shows: enumerated, each key its own number.


def seen_by_rows(cache, numbers, asked_window=None):
    """For each row the numbers that attention sees, in order."""
    tokens = len(numbers)
    mask = cache.make_mask(tokens, asked_window)
    rows = mx.array(numbers, dtype=mx.float32)[None, None, :, None]
    keys = np.array(cache.update_and_fetch(rows, -rows)[0])[0, 0, :, 0].astype(int).tolist()
    values = np.array(cache.keys_and_values()[1])[0, 0, :, 0].astype(int).tolist()
    assert values == [-key for key in keys]
    if mask is None:
        return [keys] * tokens
    if isinstance(mask, str):
        return [keys[: len(keys) - tokens + row + 1] for row in range(tokens)]
    seen = np.array(mask).reshape(tokens, -1)
    return [[key for key, wanted in zip(keys, row, strict=True) if wanted] for row in seen]


def expected(text, tokens, window):
    """The last `window` numbers up to each of the last `tokens` ones."""
    return [text[max(0, end - window) : end] for end in range(len(text) - tokens + 1, len(text) + 1)]


STEPS = st.lists(st.tuples(st.integers(1, MAX_ROWS), st.floats(0, 1)), min_size=1, max_size=40)


@settings(max_examples=30)
@given(window=st.integers(1, 40), asked=st.sampled_from([None, -1, 0, 1]), steps=STEPS)
def test_every_row_sees_its_own_window_whatever_was_taken_back(window, asked, steps):
    """`asked`: some models ask for a window one position wider or narrower than the cache."""
    asked = None if asked is None else max(window + asked, 1)
    cache, text, fresh = WindowKVCache(window), [], 1
    for tokens, share in steps:
        numbers = list(range(fresh, fresh + tokens))
        fresh += tokens
        text += numbers
        assert seen_by_rows(cache, numbers, asked) == expected(text, tokens, min(window, asked or window))
        back = round(share * tokens)
        assert cache.trim(back) == back
        del text[len(text) - back :]
        assert (cache.offset, cache.size()) == (len(text), min(len(text), window))


def test_the_oldest_are_dropped_and_memory_stays_flat():
    cache, sizes = WindowKVCache(16), set()
    for number in range(2000):
        seen_by_rows(cache, [number])
        sizes.add(cache.nbytes)
    assert max(sizes) <= 2 * (16 + cache.slack + 16) * 4


def test_what_is_gone_cannot_be_the_end_again_and_nothing_is_taken_back():
    cache = WindowKVCache(4, slack=2)
    for number in range(40):
        seen_by_rows(cache, [number])
    reachable = [position for position in range(41) if cache.reaches(position)]
    assert reachable == list(range(reachable[0], 41)) and 0 < reachable[0] <= 38
    assert cache.trim(40 - reachable[0] + 1) == 0 and cache.offset == 40
    assert cache.trim(41) == 0
    assert cache.trim(40 - reachable[0]) == 40 - reachable[0]
    assert seen_by_rows(cache, [40]) == [
        [*range(reachable[0] - 3, reachable[0]), 40]
    ]  # the whole window is still there
