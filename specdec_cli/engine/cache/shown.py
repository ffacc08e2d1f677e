"""The target's own keys and values, for a drafter that attends to them. Law: rows as they are, never copied or written.

A drafter of Gemma's kind has queries alone. A layer of it reads what the target's last layer of its kind reads: where
layers share caches, those of the layer that owns them. Nothing of it is ever taken back.
Letters: H heads, S positions shown, D head width, Q queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.models.cache import QuantizedKVCache

from specdec_cli.engine.cache.window import WindowKVCache


@dataclass(frozen=True, slots=True, eq=False)
class KeyValues:
    """Keys and values [1, H, S, D], packed where the target packs them; `mask` [Q, S], None: every query sees all.

    In a layer of mlx-lm's it takes the place of a cache to which nothing is added.
    """

    keys: Any
    values: Any
    mask: mx.array | None

    @property
    def heads(self) -> int:
        """H."""
        return int(self.keys.shape[1])

    @property
    def width(self) -> int:
        """D."""
        return int(self.keys.shape[3])

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """The same rows: they come with the call already."""
        return keys, values


@dataclass(frozen=True, slots=True, eq=False)
class PackedKeyValues(KeyValues):
    """Those of a quantized cache."""

    group_size: int
    bits: int

    @property
    def heads(self) -> int:
        return int(self.keys[1].shape[1])

    @property
    def width(self) -> int:
        return int(self.keys[1].shape[3]) * self.group_size


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """Rows by the kind of attention, for `queries` queries, one a position, of which the first is `position`."""

    rows: Mapping[str, KeyValues]
    position: int
    queries: int


def owners(network: nn.Module) -> dict[str, int]:
    """By kind of attention, which cache its last layer reads; empty where a network does not say what shares what."""
    for module in network.modules():
        if (shared := module.get("previous_kvs")) is not None:
            return {layer.layer_type: owner for layer, owner in zip(module.layers, shared, strict=True)}
    return {}


def shown(layers: Sequence[Any], owned: Mapping[str, int], length: int, queries: int = 1) -> Shown:
    """What queries at the last `queries` positions up to `length` see of `layers`, which hold so many at least.

    `owned` are the `owners`. A query at position p stands for token p, whose own key nobody has: it sees what lies
    before, in a window all but one.
    """
    first = length - queries + 1
    return Shown({kind: _rows(layers[at], first, length) for kind, at in owned.items()}, first, queries)


def _rows(part: Any, first: int, end: int) -> KeyValues:
    """Of `part` what queries at `first` to `end` see, which is what lies before them."""
    keys, values, origin, before = part.keys, part.values, 0, end
    if isinstance(part, WindowKVCache):
        keys, values = part.kept()
        origin, before = part.offset - keys.shape[2], part.max_size - 1
    begin = max(first - before, origin)
    keys, values = (tree_map(lambda rows: rows[..., begin - origin : end - origin, :], one) for one in (keys, values))
    mask = None
    if first < end:
        places, seen = mx.arange(begin, end), mx.arange(first, end + 1)[:, None]
        mask = (places < seen) & (places >= seen - before)
    if isinstance(part, QuantizedKVCache):
        return PackedKeyValues(keys, values, mask, part.group_size, part.bits)
    return KeyValues(keys, values, mask)
