"""A sliding window against the set of positions that a ring of that size shows: enumerated, each key its own number."""

import mlx.core as mx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_cli.core.request import MAX_ROWS
from specdec_cli.engine.cache.window import WindowKVCache


def feed(cache, numbers, asked_window=None):
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
        assert feed(cache, numbers, asked) == expected(text, tokens, min(window, asked or window))
        back = round(share * tokens)
        assert cache.trim(back) == back
        del text[len(text) - back :]
        assert (cache.offset, cache.size()) == (len(text), min(len(text), window))


def test_the_oldest_are_dropped_and_memory_stays_flat():
    cache, sizes = WindowKVCache(16), set()
    for number in range(2000):
        feed(cache, [number])
        sizes.add(cache.nbytes)
    assert max(sizes) <= 2 * (16 + cache.slack + 16) * 4


def test_what_is_gone_cannot_be_the_end_again_and_nothing_is_taken_back():
    cache = WindowKVCache(4, slack=2)
    for number in range(40):
        feed(cache, [number])
    reachable = [position for position in range(41) if cache.reaches(position)]
    assert reachable == list(range(reachable[0], 41)) and 0 < reachable[0] <= 38
    assert cache.trim(40 - reachable[0] + 1) == 0 and cache.offset == 40
    assert cache.trim(41) == 0
    assert cache.trim(40 - reachable[0]) == 40 - reachable[0]
    assert feed(cache, [40]) == [[*range(reachable[0] - 3, reachable[0]), 40]]  # the whole window is still there
