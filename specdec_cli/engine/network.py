"""A network in memory, the output of one pass, and whether its keys and values can be quantized.

One call feeds a network, whoever's caches those are. Quantized caches are quantized from the first token on, so that
logits depend on the tokens alone, never on how they were cut into passes (mlx-lm converts after the first chunk of the
prompt instead).
Letters: T tokens fed at once, V vocabulary size, D hidden size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import QuantizedKVCache

from specdec_cli.engine.cache.kinds import KVQuantization, leaves
from specdec_cli.engine.cache.rollback import Caches
from specdec_cli.engine.hidden import Hidden, HiddenStates
from specdec_cli.engine.memory import clear_cache
from specdec_cli.errors import Refused

GROUP_SIZES = (64, 32)
WITHOUT = "leave --kv-bits out"


def kv_quantization(network: nn.Module, bits: int, name: str) -> KVQuantization:
    """The largest groups that fit `network`'s heads. Window and recurrent layers stay as they are.

    Raises: Refused if it keeps no plain KV cache, or if its attention cannot read a quantized one.
    """
    reason = ""
    for group_size in GROUP_SIZES:
        found = KVQuantization(bits, group_size)
        caches = Caches(network, found)
        if not any(type(part) is QuantizedKVCache for part in leaves(caches.layers)):
            raise Refused(f"{name} keeps {', '.join(caches.kinds)}, nothing that --kv-bits could quantize", WITHOUT)
        try:
            network(mx.zeros((1, 2), mx.int32), cache=caches.layers)
            return found
        except (ValueError, TypeError, AttributeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
    if widths := _odd_widths(network):
        heads = f"heads of {' and '.join(map(str, widths))} values"
        needs = f"a KV cache of {bits} bits needs a multiple of {GROUP_SIZES[-1]}"
        raise Refused(f"{name} has {heads}, and {needs}", WITHOUT)
    raise Refused(f"{name} does not run on a KV cache of {bits} bits: {reason}", WITHOUT)


def _odd_widths(network: nn.Module) -> list[int]:
    """Widths of keys and values, in order, that even the smallest group does not divide; from a lazy pass."""
    caches = Caches(network)
    network(mx.zeros((1, 2), mx.int32), cache=caches.layers)
    return sorted({width for sizes in caches.head_sizes for width in sizes if width % GROUP_SIZES[-1]})


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The result of one pass over T tokens: logits [T, V], and the exposed hidden states, each [T, D]. Lazy."""

    logits: mx.array
    hidden: Hidden = field(default_factory=dict)

    def last(self, rows: int) -> Output:
        """The last `rows` rows."""
        return Output(self.logits[-rows:], {path: states[-rows:] for path, states in self.hidden.items()})


class Network:
    """Weights in memory, shared by all conversations. `name` is for messages; `context_limit` is in tokens."""

    def __init__(
        self,
        network: nn.Module,
        name: str,
        context_limit: int | None = None,
        kv_bits: int | None = None,
        reread: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """`context_limit` None is unbounded. `reread` gives the parameters again, lazily: then weights can be dropped.

        Raises: Refused if caches cannot be quantized to `kv_bits`.
        """
        self.module = network
        self.name = name
        self.context_limit = context_limit
        self.kv = kv_quantization(network, kv_bits, name) if kv_bits else None
        self.hidden = HiddenStates(network, name)
        self._reread = reread
        self._in_use = True

    def forward(self, tokens: mx.array, caches: Caches) -> Output:
        """Feed `tokens` [T] after whatever `caches` hold. The one call of the network."""
        self._in_use = True
        with caches.feeding(tokens.size):
            logits: mx.array = self.module(tokens[None], cache=caches.layers)[0]
        return Output(logits, self.hidden.take())

    def release(self) -> None:
        """Drop weights that can be read again; they are read again, lazily, at their next use."""
        if self._in_use and self._reread is not None:
            self.module.update(self._reread())
        clear_cache()
        self._in_use = False

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(value.nbytes for _, value in tree_flatten(self.module.parameters()))

    @property
    def layers(self) -> int:
        """Layers of the network."""
        return len(self.module.layers)

    @property
    def widest(self) -> int:
        """The most rows of any matrix, embeddings and output head left out."""
        parameters = tree_flatten(self.module.parameters())
        inner = [(name, value) for name, value in parameters if not re.search(r"embed|lm_head", name)]
        return max((value.shape[-2] for _, value in inner if value.ndim > 1), default=0)

    @property
    def dtype(self) -> str:
        """The type the network computes in, such as `float32`."""
        floats = [v.dtype for _, v in tree_flatten(self.module.parameters()) if mx.issubdtype(v.dtype, mx.floating)]
        return str(max(floats, key=floats.count)).removeprefix("mlx.core.")
