"""Rows of several conversations: the columns that are kept, masked, and handed back."""

from __future__ import annotations

import random
from itertools import pairwise

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache

from specdec_cli.core.errors import Refused
from specdec_cli.engine.cache import rows as rows_
from specdec_cli.engine.cache.rows import Rows
from specdec_cli.engine.cache.window import STEP_TOKENS, WindowKVCache

WINDOW = 7
FEW = 32  # columns of a step, so that room is made often


def column(row, position):
    return mx.full((1, 1, 1, 1), 10_000 * row + position)


def held(row, tokens, window=WINDOW):
    cache = WindowKVCache(window) if window else KVCache()
    for position in range(tokens):
        cache.update_and_fetch(column(row, position), column(row, position))
    return cache


def feed(rows, live, parts=None):
    """A pass in which each row feeds so many tokens, and takes so many back; which positions each fed token attends to.

    A token that is to be taken back is fed as one of row -1.
    """
    parts = parts or [(1, 0)] * len(live)
    fed = [kept + rejected for kept, rejected in parts]
    new = [
        [column(row if at < kept else -1, tokens + at) for at in range(max(fed))]
        for (row, tokens, *_), (kept, _) in zip(live, parts, strict=True)
    ]
    new = mx.concatenate([mx.concatenate(columns, axis=2) for columns in new])
    with rows.feeding(fed):
        mask = rows.layers[0].make_mask(max(fed))
        keys, _ = rows.layers[0].update_and_fetch(new, new)
    for row, (_, rejected) in enumerate(parts):
        rows.take_back(row, rejected)
    shape = (keys.shape[0], max(fed), keys.shape[2])
    seen = mx.broadcast_to(mx.array(True) if mask is None else mask[:, 0], shape).tolist()
    return [
        [[key for key, shown in zip(own, line, strict=True) if shown] for line in lines[:kept]]
        for own, lines, (kept, _) in zip(keys[:, 0, :, 0].tolist(), seen, parts, strict=True)
    ]


def test_just_after_room_was_made_a_row_of_a_full_window_leaves_with_the_pass_before_to_take_back():
    """Its last token may be changed, and nothing of its window is read again. The leave takes a pass back itself."""
    rows, end = Rows([WindowKVCache(WINDOW)]), STEP_TOKENS
    rows.join([part := held(1, WINDOW + 3)], WINDOW + 3)
    for tokens in range(WINDOW + 3, end + WINDOW + 20):
        before = rows.layers[0]._end
        ((seen,),) = feed(rows, [(1, tokens)])
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


def hidden(rows, live, chance, window):
    """How many passes of a row showed it anything but its own last positions; 150 acts of coming, going, feeding."""
    came = wrong = 0
    for _ in range(150):
        act = chance.random()
        if act < 0.2 and len(live) < 3:
            tokens = chance.choice([1, 2, 5, 40])
            live.append([came, tokens, held(came, tokens, window), 0])
            rows.join([live[-1][2]], tokens)
            came += 1
        elif act < 0.3 and live:
            at = chance.randrange(len(live))
            row, tokens, part, fed = live[at]
            length = tokens - chance.choice([0, fed])
            rows.leave(at, [part], length)
            live[at] = live[-1]
            live.pop()
            own = [10_000 * row + position for position in range(max(length - window + 1, 0), length)]
            kept = part.kept() if window < FULL else part.keys_and_values()
            wrong += (window < FULL and not part.reaches(length)) or part.offset != length
            wrong += kept[0].flatten().tolist()[len(own) * -1 or 999 :] != own
        elif live:
            parts = [(chance.choice([1, 1, 2, 3]), chance.choice([0, 0, 1, 4])) for _ in live]
            if len(live) > 1 and chance.random() < 0.2:
                parts[0] = (0, 0)  # it still drafts
            for one, (kept, _), seen in zip(live, parts, feed(rows, live, parts), strict=True):
                ends = range(one[1] + 1, one[1] + kept + 1)
                wrong += seen != [[10_000 * one[0] + at for at in range(max(end - window, 0), end)] for end in ends]
                one[1], one[3] = one[1] + kept, kept
    assert came > 3
    return wrong


FULL = 1 << 20


def gappy(monkeypatch, window, most_gaps):
    monkeypatch.setattr(rows_, "MOST_GAPS", most_gaps)
    return Rows([WindowKVCache(window) if window < FULL else KVCache()])


@pytest.mark.parametrize("most_gaps", [6, 1000])
@pytest.mark.parametrize("window", [WINDOW, FULL])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_attends_to_its_own_and_takes_it_along_whoever_comes_and_goes(monkeypatch, seed, window, most_gaps):
    """Whatever was drafted and taken back, and wherever the gaps that this left are closed."""
    assert not hidden(gappy(monkeypatch, window, most_gaps), [], random.Random(seed), window)


@pytest.mark.parametrize(
    ("owner", "method", "broken"),
    [
        (rows_.Columns, "take_back", lambda columns, row, count: None),
        (rows_.Columns, "cut", lambda columns: CUT(columns) * 0),
        (rows_.KeyValueRows, "close_up", lambda part: None),
        (rows_.KeyValueRows, "_order", lambda part: mx.arange(part._end)[None] + mx.zeros((3, 1), mx.int32)),
    ],
)
def test_a_mistaken_gap_is_found(monkeypatch, owner, method, broken):
    """Negative controls."""
    monkeypatch.setattr(owner, method, broken)
    wrong = 0
    for window in (WINDOW, FULL):
        try:
            wrong += hidden(gappy(monkeypatch, window, 6), [], random.Random(1), window)
        except (ValueError, IndexError, AssertionError):
            wrong += 1
    assert wrong


CUT = rows_.Columns.cut


def test_full_caches_are_masked_where_only_the_layers_own_window_hides():
    """Rows of one length, none of which begins later than another: the mask was thought to hide nothing."""
    rows = Rows([KVCache()])
    for row in range(2):
        rows.join([held(row, 10, None)], 10)
    assert rows.layers[0].make_mask(1) is None
    mask = rows.layers[0].make_mask(1, window_size=4)
    assert mask is not None and mx.broadcast_to(mask, [2, 1, 1, 11]).tolist() == [[[[False] * 7 + [True] * 4]]] * 2


@pytest.mark.parametrize("others", [0, 1])
def test_steps_of_a_draft_are_taken_back_together_whenever_room_is_made(others, monkeypatch):
    """Of six steps all but one are rejected; a row beside it is fed in the first one, and then nothing."""
    for name in ("STEP_TOKENS", "MOST_GAPS"):
        monkeypatch.setattr(rows_, name, FEW)
    rows, lengths, sizes = Rows([WindowKVCache(WINDOW)]), [WINDOW + 3, 4][: 1 + others], []
    for row, tokens in enumerate(lengths):
        rows.join([held(row, tokens)], tokens)

    def step(places):
        """A token of each row, or none of it: each sees its own, as far as the window goes."""
        new = mx.concatenate([column(row, 0 if at is None else at) for row, at in enumerate(places)])
        with rows.feeding([int(at is not None) for at in places]):
            mask = rows.layers[0].make_mask(1)
            keys, _ = rows.layers[0].update_and_fetch(new, new)
        sizes.append(rows.layers[0]._end)
        for row, at in enumerate(places):
            if at is not None:
                shown = mx.broadcast_to(mx.array(True) if mask is None else mask[row, 0, 0], (keys.shape[2],)).tolist()
                seen = [key for key, one in zip(keys[row, 0, :, 0].tolist(), shown, strict=True) if one]
                assert seen == [column(row, one).item() for one in range(max(at - WINDOW + 1, 0), at + 1)], (row, at)

    for _ in range(4 * FEW):
        for ahead in range(6):
            step([lengths[0] + ahead, *(None if ahead else tokens for tokens in lengths[1:])])
        rows.take_back(0, 5)
        lengths = [tokens + 1 for tokens in lengths]
    assert sum(later < before - 8 for before, later in pairwise(sizes)) > 1, "no room was made"


def test_a_row_that_is_fed_nothing_keeps_its_state():
    """What fills its place in the pass is no token of its own; a state that it bound is the others' alone."""
    rows, own = Rows([ArraysCache(1)]), [ArraysCache(1), ArraysCache(1)]
    for at, part in enumerate(own):
        part.cache = [mx.full((1, 3), float(at))]
        rows.join([part], 5)
    with rows.feeding([1, 0]):
        rows.layers[0].cache = [mx.full((2, 3), 7.0)]
    assert rows.layers[0].cache[0].tolist() == [[7.0] * 3, [1.0] * 3]
    rows.leave(1, [own[1]], 5)
    assert own[1].cache[0].tolist() == [[1.0] * 3]


def test_a_state_that_read_nothing_does_not_join():
    """With the first row's, a prompt of one token answered to another's text; zeros are another number to some."""
    rows, first, empty = Rows([ArraysCache(2)]), ArraysCache(2), ArraysCache(2)
    first.cache = [mx.ones((1, 3)), mx.ones((1, 2, 2))]
    rows.join([first], 5)
    with pytest.raises(Refused, match="has no row among those of"):
        rows.join([empty], 0)
    assert [states.shape[0] for states in rows.layers[0].cache] == [1, 1]
