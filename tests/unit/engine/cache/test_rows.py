"""Rows of several conversations: the columns that are kept, masked, and handed back."""

from __future__ import annotations

import random

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache

from specdec_cli.core.errors import Refused
from specdec_cli.engine.cache.rows import Rows
from specdec_cli.engine.cache.window import STEP_TOKENS, WindowKVCache

WINDOW = 7


def column(row, position):
    return mx.full((1, 1, 1, 1), 10_000 * row + position)


def held(row, tokens, window=WINDOW):
    cache = WindowKVCache(window) if window else KVCache()
    for position in range(tokens):
        cache.update_and_fetch(column(row, position), column(row, position))
    return cache


def feed(rows, live):
    """A pass; which positions each row attends to."""
    new = mx.concatenate([column(row, tokens) for row, tokens, *_ in live])
    with rows.feeding():
        mask = rows.layers[0].make_mask(1)
        keys, _ = rows.layers[0].update_and_fetch(new, new)
    seen = mx.broadcast_to(mx.array(True) if mask is None else mask[:, 0, 0], keys.shape[:1] + keys.shape[2:3])
    lines = zip(keys[:, 0, :, 0].tolist(), seen.tolist(), strict=True)
    return [[key for key, shown in zip(*line, strict=True) if shown] for line in lines]


def test_just_after_room_was_made_a_row_of_a_full_window_leaves_with_the_pass_before_to_take_back():
    """Its last token may be changed, and nothing of its window is read again. The leave takes a pass back itself."""
    rows, end = Rows([WindowKVCache(WINDOW)]), STEP_TOKENS
    rows.join([part := held(1, WINDOW + 3)], WINDOW + 3)
    for tokens in range(WINDOW + 3, end + WINDOW + 20):
        before = rows.layers[0]._end
        (seen,) = feed(rows, [(1, tokens)])
        assert seen == [10_000 + at for at in range(tokens - WINDOW + 1, tokens + 1)]
        if rows.layers[0]._end <= before:
            break
    else:
        pytest.fail("no room was made")
    rows.leave(0, [part], tokens)
    assert part.offset == tokens and part.trim(1) == 1
    assert part.kept()[0].flatten().tolist()[-WINDOW + 1 :] == [
        10_000 + at for at in range(tokens - WINDOW, tokens - 1)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_each_row_attends_to_its_own_window_and_takes_it_along_whoever_comes_and_goes(seed):
    chance, rows, live, came = random.Random(seed), Rows([WindowKVCache(WINDOW)]), [], 0
    for _ in range(150):
        act = chance.random()
        if act < 0.2 and len(live) < 3:
            tokens = chance.choice([1, 2, 5, 40])
            live.append([came, tokens, held(came, tokens), 0])
            rows.join([live[-1][2]], tokens)
            came += 1
        elif act < 0.3 and live:
            at = chance.randrange(len(live))
            row, tokens, part, fed = live[at]
            length = tokens - chance.choice([0, fed])
            rows.leave(at, [part], length)
            live[at] = live[-1]
            live.pop()
            own = [10_000 * row + position for position in range(max(length - WINDOW + 1, 0), length)]
            assert part.reaches(length) and part.kept()[0].flatten().tolist()[len(own) * -1 or 99 :] == own
        elif live:
            found = feed(rows, live)
            for one, seen in zip(live, found, strict=True):
                one[1], one[3] = one[1] + 1, 1
                assert seen == [10_000 * one[0] + position for position in range(max(one[1] - WINDOW, 0), one[1])]
    assert came > 3


def test_full_caches_are_masked_where_only_the_layers_own_window_hides():
    """Rows of one length, none of which begins later than another: the mask was thought to hide nothing."""
    rows = Rows([KVCache()])
    for row in range(2):
        rows.join([held(row, 10, None)], 10)
    assert rows.layers[0].make_mask(1) is None
    mask = rows.layers[0].make_mask(1, window_size=4)
    assert mask is not None and mx.broadcast_to(mask, [2, 1, 1, 11]).tolist() == [[[[False] * 7 + [True] * 4]]] * 2


def test_a_state_that_read_nothing_does_not_join():
    """With the first row's, a prompt of one token answered to another's text; zeros are another number to some."""
    rows, first, empty = Rows([ArraysCache(2)]), ArraysCache(2), ArraysCache(2)
    first.cache = [mx.ones((1, 3)), mx.ones((1, 2, 2))]
    rows.join([first], 5)
    with pytest.raises(Refused, match="has no row among those of"):
        rows.join([empty], 0)
    assert [states.shape[0] for states in rows.layers[0].cache] == [1, 1]
