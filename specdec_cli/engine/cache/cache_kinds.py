"""Facts about each kind of cache. An unknown kind is copied, put back and fed again.

KVCache, QuantizedKVCache   trimmed by moving their offset
RotatingKVCache             replaced by a WindowKVCache with slack, then trimmed
ChunkedKVCache              trimmed while the chunk it ends in is whole
ArraysCache (recurrent)     put back to before the pass, then recomputed
anything else               put back to before the pass; the kept tokens are fed again
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from specdec_cli.core.errors import Refused
from specdec_cli.engine.cache.window import STEP_TOKENS, WindowKVCache

TRIMMED = (KVCache, QuantizedKVCache)
BOUNDED = (WindowKVCache, ChunkedKVCache)
# Unless more are asked for: the newest, and the one before it.
KEPT_SNAPSHOTS = 2


@dataclass(frozen=True, slots=True)
class KVQuantization:
    """`bits` a value, and a scale and a bias for every `group_size` values."""

    bits: int
    group_size: int


def leaves(layers: Sequence[Any]) -> list[Any]:
    """All caches, those inside a CacheList one by one."""
    return [part for layer in layers for part in (leaves(layer.caches) if isinstance(layer, CacheList) else [layer])]


def rolling(layer: Any, kv: KVQuantization | None) -> Any:
    """The cache that takes the place of mlx-lm's own `layer`."""
    if isinstance(layer, CacheList):
        return CacheList(*(rolling(part, kv) for part in layer.caches))
    if type(layer) is RotatingKVCache:
        if layer.keep:
            # mlx-lm masks several rows of such a ring otherwise than a single one: no pass over a draft can be exact.
            raise Refused(
                f"a window that keeps its first {layer.keep} tokens cannot be rolled back", "use mlx-lm itself"
            )
        return WindowKVCache(layer.max_size)
    if type(layer) is KVCache and kv:
        return QuantizedKVCache(kv.group_size, kv.bits)
    return layer


def reaches(part: Any, position: int) -> bool:
    """Whether a bounded cache still holds every position that attention at `position` reads."""
    if isinstance(part, ChunkedKVCache):
        return bool(part.start_position <= position // part.chunk_size * part.chunk_size)
    return bool(part.reaches(position))


def state_of(part: Any) -> dict[str, Any]:
    """The state that brings `part` back here, without a copy wherever its arrays are safe.

    Recurrent slots are rebound, never written to. Windows and chunks are only appended to: rows before a snapshot's end
    are not written again while the snapshot is kept. Any other kind is copied.
    """
    if type(part) is ArraysCache:
        return dict(vars(part)) | {"cache": list(part.cache)}
    return dict(vars(part)) if type(part) in BOUNDED else saved(part)


def cut_out(part: Any) -> dict[str, Any]:
    """`state_of`, computed, in buffers of its own size: a slice keeps alive all that it was cut from.

    A convolution's state is a slice of a whole chunk's activations.
    """
    state = state_of(part)
    if type(part) is ArraysCache:
        state["cache"] = [None if array is None else mx.contiguous(array) for array in state["cache"]]
        mx.eval(state["cache"])
    return state


def put_back(parts: Sequence[Any], states: Sequence[dict[str, Any]]) -> None:
    """Bring all `parts` back to `states`, which stay as they are and can be used again."""
    for part, state in zip(parts, states, strict=True):
        vars(part).update(state_of(_twin(part, state)))


def _twin(part: Any, state: dict[str, Any]) -> Any:
    twin = object.__new__(type(part))
    vars(twin).update(state)
    return twin


def detached(part: Any) -> Any:
    """A copy of a cache that later writes do not reach: mlx writes into an array through every name it has."""
    return _twin(part, saved(part))


def saved(part: Any) -> dict[str, Any]:
    """A cache's attributes with arrays of their own; no copy is made before one side is written to."""
    return own(vars(part), {})


def own(attributes: Mapping[str, Any], copies: dict[int, mx.array]) -> dict[str, Any]:
    """The same attributes with arrays of their own; what was one array stays one, by its `copies` so far."""
    return {name: _own(value, copies) for name, value in attributes.items()}


def without_room(part: Any) -> dict[str, Any]:
    """A cache's attributes; of one that is trimmed, with no row for tokens to come."""
    state = dict(vars(part))
    if type(part) in TRIMMED and not part.empty():
        state["keys"], state["values"] = tree_map(lambda rows: rows[..., : part.offset, :], (part.keys, part.values))
    return state


def _own(value: Any, copies: dict[int, mx.array]) -> Any:
    if isinstance(value, mx.array):
        return copies.setdefault(id(value), value[...])
    if isinstance(value, list | tuple):
        return type(value)(_own(item, copies) for item in value)
    return value


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What a cache takes, in numbers: `values` and `packed_bytes` a position, of `window` positions at most if bounded.

    Packed numbers do not depend on the type that the network computes in. A recurrent state takes `state_bytes`.
    """

    values: float = 0.0
    packed_bytes: float = 0.0
    window: int | None = None
    state_bytes: int = 0

    @classmethod
    def of(cls, part: Any) -> CacheSize:
        """Of a cache that has read something; one that no layer uses takes nothing."""
        if part.empty():
            return cls()
        if type(part) not in TRIMMED + BOUNDED:
            return cls(state_bytes=part.nbytes)
        numbers = [(array, array.size / array.shape[2]) for _, array in tree_flatten((part.keys, part.values))]
        values = sum(count for array, count in numbers if mx.issubdtype(array.dtype, mx.floating))
        packed = sum(count * a.itemsize for a, count in numbers if not mx.issubdtype(a.dtype, mx.floating))
        window = None
        if type(part) in BOUNDED:
            window = part.max_size + part.slack if isinstance(part, WindowKVCache) else part.chunk_size
        return cls(values, packed, window)

    def nbytes(self, tokens: int, chunk_tokens: int, value_bytes: int, snapshots: int = KEPT_SNAPSHOTS) -> int:
        """Bytes once `tokens` were read in chunks, with `value_bytes` a value.

        A recurrent state is counted as it is, as it was before the last pass, and once for each of the `snapshots`. A
        window's snapshots are its own arrays until old positions are dropped.
        """
        rows = _rounded_up(tokens)
        if self.window is not None:
            rows = min(rows, _rounded_up(self.window + min(chunk_tokens, tokens))) * (1 + snapshots)
        return int(rows * (self.values * value_bytes + self.packed_bytes)) + (2 + snapshots) * self.state_bytes


def head_sizes(part: Any) -> tuple[int, int] | None:
    """Sizes of a head's key and value; None where nothing was read, where they are quantized, and for other states."""
    if type(part) not in TRIMMED + BOUNDED or part.empty() or not isinstance(part.keys, mx.array):
        return None
    return part.keys.shape[-1], part.values.shape[-1]


def _rounded_up(tokens: int) -> int:
    return -(-tokens // STEP_TOKENS) * STEP_TOKENS


# A conversation's contents as bytes: its arrays as mlx writes them, and all else as an outline for JSON.


def parts_of(contents: Any) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """(all values by path, but for arrays; the arrays by path)."""
    values = dict(tree_flatten(contents, is_leaf=_is_plain))
    arrays = {path: value for path, value in values.items() if isinstance(value, mx.array)}
    return {path: value for path, value in values.items() if path not in arrays}, arrays


def as_bytes(arrays: Mapping[str, mx.array], metadata: Mapping[str, str]) -> bytearray:
    """Safetensors, with the `metadata` in its header.

    Slices are copied one at a time: mlx's own writer holds a copy of all of them beside the bytes.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for path, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[path] = {"dtype": _word(array.dtype), "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = bytearray(8 + len(text) + end)
    data[: 8 + len(text)] = len(text).to_bytes(8, "little") + text
    place = memoryview(data)[8 + len(text) :]
    for path, array in arrays.items():
        begin, end = header[path]["data_offsets"]
        flat: Any = array.reshape(-1).view(mx.uint8)  # a buffer, which mlx's types do not say
        place[begin:end] = memoryview(flat)
    return data


def _word(dtype: mx.Dtype) -> str:
    """Safetensors' own, such as `BF16`."""
    name = str(dtype).removeprefix("mlx.core.")
    return name.replace("float", "f").replace("uint", "u").replace("int", "i").upper()


def read_contents(outline: Mapping[str, Any], file: Path) -> Any:
    """The contents whose `outline` and arrays these are; tuples are lists. Raises: whatever mlx raises."""
    arrays = mx.load(str(file))
    assert isinstance(arrays, dict)
    mx.eval(arrays)
    return tree_unflatten([*outline.items(), *arrays.items()])


def _is_plain(value: Any) -> bool:
    """Whether it is a list of numbers, or an empty one, which has no path."""
    return isinstance(value, list | tuple) and not any(isinstance(one, mx.array | list | tuple | dict) for one in value)
