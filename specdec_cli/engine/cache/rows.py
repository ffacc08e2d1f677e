"""The caches of several conversations side by side, a row each, for passes that they share.

Law: in one pass every row attends to exactly what it would alone. All rows end at one column, so a pass writes the
columns behind it, in place. A column in which a row holds no token is masked in that row: what lies before its
beginning, and what was fed and taken back. A row that comes is copied, alone; one that goes hands back what it read
since; the last row moves into its place. mlx-lm's own batched caches copy all rows whenever one comes or goes.
Letters: B rows, H heads, T tokens fed to each, C columns, D head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache

from specdec_cli.core.errors import Refused
from specdec_cli.core.request import MAX_K
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.cache.window import STEP_TOKENS, WindowKVCache

# What a column holds in which a row has no token.
NOTHING = -1
# Columns without a token beside those of a row, up to which they stay.
MOST_GAPS = STEP_TOKENS


@dataclass
class Columns:
    """What the rows' columns hold, the same in every layer, counted from their common end.

    `tokens` that each row holds before the pass; `gaps`: its columns without a token behind its first one, of which
    `taken_back` at least are its last ones. `places` [B, C] are the positions of what the last C columns hold; None
    where no row has a gap, so that its length says all. `after` is what a layer's offset [B] is once it was fed. There
    is room for `expected` rows at least.
    """

    expected: int = 1
    tokens: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    taken_back: list[int] = field(default_factory=list)
    places: mx.array | None = None
    after: mx.array = field(default_factory=lambda: mx.array([], dtype=mx.int32))

    @property
    def most_gaps(self) -> int:
        """In any row."""
        return max(self.gaps, default=0)

    def most(self, window: int | None = None) -> int:
        """Columns of the longest row, up to its first token, or to the first of its last `window` ones."""
        within = (tokens if window is None else min(tokens, window) for tokens in self.tokens)
        return max((n + gaps for n, gaps in zip(within, self.gaps, strict=True)), default=0)

    def last(self, columns: int) -> mx.array:
        """[B, columns]: the positions of what the last columns hold in each row, `NOTHING` where that is no token."""
        if self.places is None:
            ends = mx.array(self.tokens, dtype=mx.int32)[:, None]
            return mx.maximum(ends - columns + mx.arange(columns), NOTHING)
        more = columns - self.places.shape[1]
        return mx.pad(self.places, [(0, 0), (max(more, 0), 0)], constant_values=NOTHING)[:, max(-more, 0) :]

    def feed(self, tokens: int, fed: Sequence[int]) -> None:
        """A pass of so many columns was run, of which each row holds the first `fed`."""
        if self.places is not None or min(fed) < tokens:
            begins = mx.array(self.tokens, dtype=mx.int32)[:, None]
            behind = mx.arange(tokens) + mx.zeros_like(begins)
            new = mx.where(behind < mx.array([*fed])[:, None], begins + behind, NOTHING)
            self.places = mx.concatenate([self.last(self.most()), new], axis=1)
        self.tokens = [held + n for held, n in zip(self.tokens, fed, strict=True)]
        self.gaps = [gaps + tokens - n for gaps, n in zip(self.gaps, fed, strict=True)]
        # Behind a row that was fed nothing are the columns that were without a token before, too.
        self.taken_back = [tokens - n + last * (not n) for last, n in zip(self.taken_back, fed, strict=True)]

    def take_back(self, row: int, count: int) -> None:
        """The last `count` tokens of `row` are none any more, wherever they are."""
        if count:
            places = self.last(self.most())
            self.tokens[row] -= count
            places[row] = mx.where(places[row] < self.tokens[row], places[row], NOTHING)
            self.places = places
            self.gaps[row] += count
            self.taken_back[row] += count

    def cut(self) -> int:
        """The last columns go in which no row holds a token. Returns how many."""
        count = min(self.taken_back, default=0)
        if count and self.places is not None:
            self.places = self.places[:, :-count]
            self.gaps = [gaps - count for gaps in self.gaps]
            self.taken_back = [taken - count for taken in self.taken_back]
            self._settle()
        return count

    def join(self, length: int) -> None:
        """A row behind the others, of so many tokens."""
        if self.places is not None:
            columns = max(self.most(), length)
            new = mx.maximum(mx.arange(length - columns, length, dtype=mx.int32), NOTHING)[None]
            self.places = mx.concatenate([self.last(columns), new])
        self.tokens.append(length)
        self.gaps.append(0)
        self.taken_back.append(0)

    def drop(self, row: int) -> None:
        """The last row takes the place of `row`."""
        if self.places is not None:
            self.places[row] = self.places[-1]
            self.places = self.places[:-1]
        for counts in (self.tokens, self.gaps, self.taken_back):
            counts[row] = counts[-1]
            counts.pop()
        self._settle()

    def close_up(self) -> None:
        """No row has a gap any more: its columns were moved to the end, in their order."""
        self.gaps, self.taken_back, self.places = [0] * len(self.gaps), [0] * len(self.gaps), None

    def _settle(self) -> None:
        if not any(self.gaps):
            self.places = None


class KeyValueRows:
    """Takes the place of a KVCache, or of a window of `max_size`; `offset` [B] are the rows' own positions."""

    def __init__(self, columns: Columns, max_size: int | None = None) -> None:
        self._columns, self.max_size = columns, max_size
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = columns.after
        self._end = self._shown = 0

    def empty(self) -> bool:
        return self.keys is None

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        return self.keys, self.values

    def _first(self) -> int:
        """The first column that the coming token of any row attends to."""
        return self._end - self._columns.most(None if self.max_size is None else self.max_size - 1)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append [B, H, T, D], T tokens a row; all columns that any row attends to."""
        rows, _, tokens, _ = keys.shape
        self._make_rows(rows, keys, values)
        assert self.keys is not None and self.values is not None
        if self._end + tokens > self.keys.shape[2]:
            self._make_room(tokens)
        self._shown = self._end + tokens - self._first()
        self.keys[:rows, :, self._end : self._end + tokens, :] = keys
        self.values[:rows, :, self._end : self._end + tokens, :] = values
        self._end += tokens
        self.offset = self._columns.after
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """The columns that the last update returned: layers that share this cache read them again."""
        assert self.keys is not None and self.values is not None
        rows, first = len(self._columns.tokens), self._end - self._shown
        return self.keys[:rows, :, first : self._end, :], self.values[:rows, :, first : self._end, :]

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | None:
        """[B, 1, N, C] for N tokens of each row that are about to be appended; None: all rows see all columns."""
        held, tokens = self._end - self._first(), self._columns.tokens
        window = min(window_size or max(tokens) + N, self.max_size or max(tokens) + N)
        if N == 1 and not self._columns.most_gaps and min(tokens) >= held < window:
            return None
        fed = mx.array(tokens, dtype=mx.int32)[:, None] + mx.arange(N)
        places = mx.concatenate([self._columns.last(held), fed], axis=1)[:, None, None, :]
        fed = fed[:, None, :, None]
        return (places >= 0) & (places <= fed) & (places > fed - window)

    def require_fit(self, part: KVCache | WindowKVCache) -> None:
        """Raises: Refused unless `part` has heads and widths as the rows here have."""
        for mine, own in ((self.keys, part.keys), (self.values, part.values)):
            if mine is not None and own is not None:
                _require_same((own.shape[1], own.shape[3]), (mine.shape[1], mine.shape[3]))

    def stretch(self, columns: int) -> None:
        """Rows of so many columns, which a window leaves open: numbers that are never computed."""
        if self.keys is not None and self.values is not None:
            held, rows = (self.keys, self.values), len(self._columns.tokens)
            self.keys, self.values = (
                mx.zeros([rows, heads.shape[1], columns + 1, heads.shape[3]], heads.dtype) for heads in held
            )
        self.max_size, self._end = None, columns

    def join(self, part: KVCache | WindowKVCache) -> None:
        """A row behind the others, with what attention still reads of `part`."""
        row, columns = len(self._columns.tokens), 0
        if part.keys is not None:
            held = part.keys_and_values() if type(part) is KVCache else part.kept()
            keys, values = (rows if self.max_size is None else rows[..., -self.max_size :, :] for rows in held)
            columns = keys.shape[2]
            self._end = self._end if self.keys is not None else columns
            self._make_rows(row + 1, keys, values)
            assert self.keys is not None and self.values is not None
            if columns > self._end:
                self.keys, self.values = (_moved(rows, columns - self._end) for rows in (self.keys, self.values))
                self._end = columns
            self.keys[row : row + 1, :, self._end - columns : self._end, :] = keys
            self.values[row : row + 1, :, self._end - columns : self._end, :] = values
        if self.values is not None and row < self.values.shape[0]:
            # A masked value weighs 0, and 0 × NaN is NaN: so nothing of an earlier row stays.
            self.values[row : row + 1, :, : self._end - columns, :] = 0

    def hand_back(self, row: int, length: int, part: KVCache | WindowKVCache) -> None:
        """`part` gets what it lacks of the first `length` tokens of `row`."""
        if self.keys is None or self.values is None or part.offset == length:
            return
        lacking, behind = length - part.offset, self._columns.tokens[row] - length
        most = self._end - behind if self.max_size is None or not self._columns.gaps[row] else self.max_size
        if lacking > most:  # the window went on beyond what `part` holds
            assert isinstance(part, WindowKVCache)
            lacking = most
            part.restart(length - lacking)
        keys, values = (heads[row : row + 1, :, : self._end, :] for heads in (self.keys, self.values))
        if self._columns.gaps[row]:
            order = self._order()[row]
            keys, values = (mx.take(heads, order, axis=2) for heads in (keys, values))
        # Copies: a slice would keep all rows in memory.
        end = keys.shape[2] - behind
        part.update_and_fetch(keys[:, :, end - lacking : end, :], values[:, :, end - lacking : end, :])

    def close_up(self) -> None:
        """Every row's tokens move to the end, in their order."""
        if self.keys is None or self.values is None:
            return
        rows, order = len(self._columns.tokens), self._order()[:, None, :, None]
        kept = min(order.shape[2], max(self._columns.tokens))
        self.keys, self.values = (
            mx.take_along_axis(heads[:rows, :, : self._end, :], order[:, :, -kept:], axis=2)
            for heads in (self.keys, self.values)
        )
        self._end = kept

    def cut(self, columns: int) -> None:
        """The last ones go."""
        self._end -= columns

    def _order(self) -> mx.array:
        """[B, C]: of the last C columns, all that are of use, first those without a token, then the others in order."""
        columns = min(self._columns.most(), self._end)
        return mx.argsort(self._columns.last(columns), axis=1) + (self._end - columns)

    def move(self, source: int, row: int) -> None:
        """The last row, `source`, takes the place of `row`."""
        if self.keys is not None and self.values is not None and row != source:
            self.keys[row : row + 1] = self.keys[source : source + 1]
            self.values[row : row + 1] = self.values[source : source + 1]

    def clear(self) -> None:
        self.keys = self.values = None
        self._end = 0

    def _make_rows(self, count: int, keys: mx.array, values: mx.array) -> None:
        """For so many conversations or more, with heads like those of `keys` and `values`."""
        most = 1 << (max(count, self._columns.expected) - 1).bit_length()
        if self.keys is None or self.values is None:
            columns = (keys.shape[2] // STEP_TOKENS + 1) * STEP_TOKENS
            self.keys, self.values = (
                mx.zeros([most, rows.shape[1], columns, rows.shape[3]], rows.dtype) for rows in (keys, values)
            )
        elif (more := most - self.keys.shape[0]) > 0:
            held = (self.keys, self.values)
            self.keys, self.values = (
                mx.concatenate([rows, mx.zeros([more, *rows.shape[1:]], rows.dtype)]) for rows in held
            )

    def _make_room(self, tokens: int) -> None:
        """For `tokens` columns or more. What nobody attends to goes, but for what a draft may be taken back by."""
        assert self.keys is not None and self.values is not None
        rows = max(len(self._columns.tokens), self._columns.expected)
        first, most = max(self._first() - MAX_K, 0), 1 << (rows - 1).bit_length()
        kept = [rows[:most, :, first : self._end, :] for rows in (self.keys, self.values)]
        step = -(-tokens // STEP_TOKENS) * STEP_TOKENS
        room = [mx.zeros([*rows.shape[:2], step, rows.shape[3]], rows.dtype) for rows in kept]
        self.keys, self.values = (mx.concatenate([*pair], axis=2) for pair in zip(kept, room, strict=True))
        self._end -= first


def _require_same(own: Sequence[int], others: Sequence[int]) -> None:
    if tuple(own) != tuple(others):
        raise Refused(f"a state of shape {tuple(own)} has no row among those of {tuple(others)}", "it takes turns")


def _moved(rows: mx.array, columns: int) -> mx.array:
    """`rows` with so many columns before."""
    before = mx.zeros([*rows.shape[:2], columns, rows.shape[3]], rows.dtype)
    return mx.concatenate([before, rows], axis=2)


class StateRows(ArraysCache):  # type: ignore[misc]  # mlx-lm has no types
    """Recurrent states [B, …]. A pass binds new ones, so those before it are the way back."""

    def __init__(self, columns: Columns, size: int) -> None:
        super().__init__(size)
        self._columns = columns
        self.cache: list[mx.array | None]
        self._before: list[mx.array | None] = []

    def begin_pass(self) -> None:
        """The states as they are now are those before the pass."""
        self._before = list(self.cache)

    def end_pass(self, fed: Sequence[int]) -> None:
        """A row that was fed nothing has the states that it had: what filled its place is no token of its own."""
        if all(fed):
            return
        for at, (now, before) in enumerate(zip(self.cache, self._before, strict=True)):
            if now is not None and before is not None:
                some = mx.array([n > 0 for n in fed]).reshape(-1, *[1] * (now.ndim - 1))
                self.cache[at] = mx.where(some, now, before)

    def require_fit(self, part: ArraysCache) -> None:
        """Raises: Refused unless `part` has states of the shapes that are here; one that is not there is no zero."""
        for mine, own in zip(self.cache, part.cache, strict=True):
            if self._columns.tokens:
                _require_same(*([] if state is None else state.shape[1:] for state in (own, mine)))

    def join(self, part: ArraysCache) -> None:
        """A row behind the others."""
        for at, (mine, own) in enumerate(zip(self.cache, part.cache, strict=True)):
            self.cache[at] = own if mine is None else mx.concatenate([mine, own])

    def hand_back(self, row: int, length: int, part: ArraysCache) -> None:
        """`part` gets the state of `row` at `length`: now, or before the last pass."""
        states = self.cache if self._columns.tokens[row] == length else self._before
        # A slice would keep all rows in memory.
        part.cache = [None if rows is None else mx.contiguous(rows[row : row + 1]) for rows in states]

    def move(self, source: int, row: int) -> None:
        """The last row, `source`, takes the place of `row`."""
        order = mx.array([source if at == row else at for at in range(source)], dtype=mx.int32)
        for states in (self.cache, self._before):
            for at, rows in enumerate(states):
                if rows is not None and rows.shape[0] > source:
                    states[at] = rows[order]

    def clear(self) -> None:
        self.cache, self._before = [None] * len(self.cache), []


class Rows:
    """All layer caches of one network, with a row for each conversation that joined."""

    def __init__(self, layers: Sequence[Any]) -> None:
        """`layers` are such as one conversation has. Raises: Refused if one of them is of a kind that has no rows."""
        self._columns = Columns()
        self.layers = [_rows_of(layer, self._columns) for layer in layers]
        self._parts: list[KeyValueRows | StateRows] = leaves(self.layers)
        self._key_values = [part for part in self._parts if isinstance(part, KeyValueRows)]

    def __len__(self) -> int:
        return len(self._columns.tokens)

    def length(self, row: int) -> int:
        """Tokens in `row`."""
        return self._columns.tokens[row]

    @property
    def takes_back(self) -> bool:
        """Whether several tokens of a pass can be taken back: no recurrent state is among the caches."""
        return len(self._key_values) == len(self._parts)

    def expect(self, count: int) -> None:
        """So many conversations are about to be here at once: whoever joins then moves no other."""
        self._columns.expected = count

    @contextmanager
    def feeding(self, fed: Sequence[int]) -> Iterator[None]:
        """Around one call of the network, which feeds every row as many tokens as the longest; `fed` of each are some.

        Where states are recurrent, all are, or none.
        """
        columns, tokens = self._columns, max(fed)
        if columns.most_gaps > MOST_GAPS:
            for part in self._key_values:
                part.close_up()
            columns.close_up()
        elif cut := columns.cut():
            for part in self._key_values:
                part.cut(cut)
        before, columns.after = (mx.array([n + more for n in columns.tokens], dtype=mx.int32) for more in (0, tokens))
        for part in self._parts:
            if isinstance(part, StateRows):
                part.begin_pass()
            else:
                part.offset = before
        yield
        columns.feed(tokens, fed)
        for part in self._parts:
            if isinstance(part, StateRows):
                part.end_pass(fed)

    def take_back(self, row: int, count: int) -> None:
        """The last `count` tokens of `row` are none any more."""
        self._columns.take_back(row, count)

    def join(self, layers: Sequence[Any], length: int) -> None:
        """A row behind the others, with the `length` tokens that `layers` hold, which stay as they are.

        Raises: Refused where a part of `layers` does not fit; the rows are then as they were.
        """
        pairs = list(zip(self._parts, leaves(layers), strict=True))
        for rows, part in pairs:
            rows.require_fit(part)
        for rows, part in pairs:
            rows.join(part)
        self._columns.join(length)

    def stretch(self, tokens: int) -> None:
        """The first row, as if it held so many tokens: for a pass whose graph is built and never computed."""
        self._columns.tokens[0] = tokens
        for part in self._key_values:
            part.stretch(tokens)

    def leave(self, row: int, layers: Sequence[Any], length: int) -> None:
        """`row` goes, and the last one takes its place: `layers`, which joined, now hold its first `length` tokens.

        That is all that it holds, or less by tokens that it was fed last: one at most where states are recurrent.
        """
        try:
            for rows, part in zip(self._parts, leaves(layers), strict=True):
                if not rows.empty():
                    rows.hand_back(row, length, part)
            mx.async_eval([layer.state for layer in layers])  # nothing that is lazy may hold on to the rows
        finally:
            self._drop(row)

    def _drop(self, row: int) -> None:
        self._columns.drop(row)
        for rows in self._parts:
            if len(self):
                rows.move(len(self), row)
            else:
                rows.clear()


def _rows_of(layer: Any, columns: Columns) -> Any:
    if isinstance(layer, CacheList):
        return CacheList(*(_rows_of(part, columns) for part in layer.caches))
    if type(layer) is ArraysCache:
        return StateRows(columns, len(layer.cache))
    if type(layer) not in (KVCache, WindowKVCache):
        raise Refused(f"a {type(layer).__name__} is of one conversation alone", "its requests take turns")
    return KeyValueRows(columns, layer.max_size if type(layer) is WindowKVCache else None)
