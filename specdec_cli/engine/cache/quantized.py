"""Quantized key/value caches. Law: whether a network runs on them is found out in a lazy pass, before a weight is read.

They are quantized from the first token on, so that logits depend on the tokens alone, never on how they were cut into
passes (mlx-lm converts after the first chunk of the prompt instead).
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import QuantizedKVCache

from specdec_cli.engine.cache.kinds import KVQuantization, leaves
from specdec_cli.engine.cache.rollback import Caches
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
