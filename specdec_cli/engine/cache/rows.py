"""The caches of several conversations side by side, a row each, for passes that they share.

Law: in one pass every row attends to exactly what it would alone. All rows end at one column and begin where their
length says, so a pass writes one column, in place; what lies before a row's beginning is masked. A row that comes is
copied, alone; one that goes hands back what it read since; the last row moves into its place. mlx-lm's own batched
caches copy all rows whenever one comes or goes.
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
from specdec_cli.engine.cache.cache_kinds import leaves
from specdec_cli.engine.cache.window import STEP_TOKENS, WindowKVCache


@dataclass
class Lengths:
    """Tokens that each row holds before the pass; `after` is what a layer's offset [B] is once it was fed.

    There is room for `expected` rows at least.
    """

    expected: int = 1
    tokens: list[int] = field(default_factory=list)
    after: mx.array = field(default_factory=lambda: mx.array([], dtype=mx.int32))


class KeyValueRows:
    """Takes the place of a KVCache, or of a window of `max_size`; `offset` [B] are the rows' own positions."""

    def __init__(self, lengths: Lengths, max_size: int | None = None) -> None:
        self._lengths, self.max_size = lengths, max_size
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.offset = lengths.after
        self._end = self._shown = 0

    def empty(self) -> bool:
        return self.keys is None

    @property
    def state(self) -> tuple[mx.array | None, mx.array | None]:
        return self.keys, self.values

    def _first(self) -> int:
        """The first column that the coming token of any row attends to."""
        columns = max(self._lengths.tokens, default=0)
        if self.max_size is not None:
            columns = min(columns, self.max_size - 1)
        return self._end - columns

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
        self.offset = self._lengths.after
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """The columns that the last update returned: layers that share this cache read them again."""
        assert self.keys is not None and self.values is not None
        rows, first = len(self._lengths.tokens), self._end - self._shown
        return self.keys[:rows, :, first : self._end, :], self.values[:rows, :, first : self._end, :]

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | None:
        """[B, 1, N, C] for N tokens of each row that are about to be appended; None: all rows see all columns."""
        first, end = self._first(), self._end
        window = min(window_size or end + N, self.max_size or end + N)
        begins = [end - tokens for tokens in self._lengths.tokens]
        if N == 1 and max(max(begins), end + 1 - window) <= first:
            return None
        columns, places = mx.arange(first, end + N), mx.arange(end, end + N)[:, None]
        seen = (columns <= places) & (columns > places - window)
        return seen & (columns >= mx.array(begins)[:, None, None, None])

    def require_fit(self, part: KVCache | WindowKVCache) -> None:
        """Raises: Refused unless `part` has heads and widths as the rows here have."""
        for mine, own in ((self.keys, part.keys), (self.values, part.values)):
            if mine is not None and own is not None:
                _require_same((own.shape[1], own.shape[3]), (mine.shape[1], mine.shape[3]))

    def stretch(self, columns: int) -> None:
        """Rows of so many columns, which a window leaves open: numbers that are never computed."""
        if self.keys is not None and self.values is not None:
            held, rows = (self.keys, self.values), len(self._lengths.tokens)
            self.keys, self.values = (
                mx.zeros([rows, heads.shape[1], columns + 1, heads.shape[3]], heads.dtype) for heads in held
            )
        self.max_size, self._end = None, columns

    def join(self, part: KVCache | WindowKVCache) -> None:
        """A row behind the others, with what attention still reads of `part`."""
        row, columns = len(self._lengths.tokens), 0
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
        end = self._end - (self._lengths.tokens[row] - length)
        begin = max(end - (length - part.offset), 0)
        if end - begin < length - part.offset:  # the window went on beyond what `part` holds
            assert isinstance(part, WindowKVCache)
            part.restart(length - (end - begin))
        # Copies: a slice would keep all rows in memory.
        part.update_and_fetch(self.keys[row : row + 1, :, begin:end, :], self.values[row : row + 1, :, begin:end, :])

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
        most = 1 << (max(count, self._lengths.expected) - 1).bit_length()
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
        """For `tokens` columns or more. What nobody attends to goes, but for a column: a pass may be taken back."""
        assert self.keys is not None and self.values is not None
        rows = max(len(self._lengths.tokens), self._lengths.expected)
        first, most = max(self._first() - 1, 0), 1 << (rows - 1).bit_length()
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

    def __init__(self, lengths: Lengths, size: int) -> None:
        super().__init__(size)
        self._lengths = lengths
        self.cache: list[mx.array | None]
        self._before: list[mx.array | None] = []

    def begin_pass(self) -> None:
        """The states as they are now are those before the pass."""
        self._before = list(self.cache)

    def require_fit(self, part: ArraysCache) -> None:
        """Raises: Refused unless `part` has states of the shapes that are here; one that is not there is no zero."""
        for mine, own in zip(self.cache, part.cache, strict=True):
            if self._lengths.tokens:
                _require_same(*([] if state is None else state.shape[1:] for state in (own, mine)))

    def join(self, part: ArraysCache) -> None:
        """A row behind the others."""
        for at, (mine, own) in enumerate(zip(self.cache, part.cache, strict=True)):
            self.cache[at] = own if mine is None else mx.concatenate([mine, own])

    def hand_back(self, row: int, length: int, part: ArraysCache) -> None:
        """`part` gets the state of `row` at `length`: now, or before the last pass."""
        states = self.cache if self._lengths.tokens[row] == length else self._before
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
        self._lengths = Lengths()
        self.layers = [_rows_of(layer, self._lengths) for layer in layers]
        self._parts: list[KeyValueRows | StateRows] = leaves(self.layers)

    def __len__(self) -> int:
        return len(self._lengths.tokens)

    def expect(self, count: int) -> None:
        """So many conversations are about to be here at once: whoever joins then moves no other."""
        self._lengths.expected = count

    @contextmanager
    def feeding(self, tokens: int = 1) -> Iterator[None]:
        """Around one call of the network on so many tokens of every row; of several, the last ones may be none."""
        held = self._lengths.tokens
        before, self._lengths.after = (mx.array([n + fed for n in held], dtype=mx.int32) for fed in (0, tokens))
        for part in self._parts:
            if isinstance(part, StateRows):
                part.begin_pass()
            else:
                part.offset = before
        yield
        self._lengths.tokens = [n + tokens for n in held]

    def join(self, layers: Sequence[Any], length: int) -> None:
        """A row behind the others, with the `length` tokens that `layers` hold, which stay as they are.

        Raises: Refused where a part of `layers` does not fit; the rows are then as they were.
        """
        pairs = list(zip(self._parts, leaves(layers), strict=True))
        for rows, part in pairs:
            rows.require_fit(part)
        for rows, part in pairs:
            rows.join(part)
        self._lengths.tokens.append(length)

    def stretch(self, tokens: int) -> None:
        """The first row, as if it held so many tokens: for a pass whose graph is built and never computed."""
        self._lengths.tokens[0] = tokens
        for part in self._parts:
            if isinstance(part, KeyValueRows):
                part.stretch(tokens)

    def leave(self, row: int, layers: Sequence[Any], length: int) -> None:
        """`row` goes, and the last one takes its place: `layers`, which joined, now hold its first `length` tokens.

        That is all that it holds, or less by tokens of the last pass: one at most where states are recurrent.
        """
        try:
            for rows, part in zip(self._parts, leaves(layers), strict=True):
                if not rows.empty():
                    rows.hand_back(row, length, part)
            mx.async_eval([layer.state for layer in layers])  # nothing that is lazy may hold on to the rows
        finally:
            self._drop(row)

    def _drop(self, row: int) -> None:
        held, last = self._lengths.tokens, len(self) - 1
        held[row] = held[last]
        held.pop()
        for rows in self._parts:
            if held:
                rows.move(last, row)
            else:
                rows.clear()


def _rows_of(layer: Any, lengths: Lengths) -> Any:
    if isinstance(layer, CacheList):
        return CacheList(*(_rows_of(part, lengths) for part in layer.caches))
    if type(layer) is ArraysCache:
        return StateRows(lengths, len(layer.cache))
    if type(layer) not in (KVCache, WindowKVCache):
        raise Refused(f"a {type(layer).__name__} is of one conversation alone", "its requests take turns")
    return KeyValueRows(lengths, layer.max_size if type(layer) is WindowKVCache else None)
