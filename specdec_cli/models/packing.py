"""How a model's weights are packed into few bits, by its configuration (pure). A head is packed as its target's
last layer is, so that both round alike; a matrix that this layer lacks is packed as the model's usual ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from specdec_cli.models.checkpoint import QUANTIZATION_KEYS, Checkpoint

# What configurations of other tools mean, as mlx-lm reads them; those it packs otherwise are left in 16 bits.
METHODS = {"mxfp4": {"group_size": 32, "bits": 4}, "mxfp8": {"group_size": 32, "bits": 8}}
SCALED_BY_GROUP = ("awq", "gptq")
LAYER = re.compile(r"(?:.*\.)?layers\.(\d+)\.(.+)")
# A scale and a bias of two bytes each for affine groups, else one byte.
GROUP_BYTES = {"affine": 4}


@dataclass(frozen=True, slots=True)
class Bits:
    """Numbers of `bits` each that share a scale in groups of `group_size`; `mode` as mlx calls it."""

    group_size: int
    bits: int
    mode: str = "affine"

    def size_bytes(self, shape: Sequence[int]) -> int:
        """Bytes of a matrix of that shape."""
        values = prod(shape)
        return values * self.bits // 8 + values // self.group_size * GROUP_BYTES.get(self.mode, 1)


@dataclass(frozen=True, slots=True)
class Packing:
    """`usual` is for matrices that `named` does not list; it lists them by their names in a layer, None for 16 bits."""

    usual: Bits
    named: Mapping[str, Bits | None]

    def of(self, path: str, shape: Sequence[int]) -> Bits | None:
        """How the matrix at `path`, such as `layers.0.mlp.gate`, is packed; None: it stays in 16 bits."""
        layer = LAYER.fullmatch(path)
        bits = self.named.get(layer[2], self.usual) if layer else self.usual
        fits = bits is not None and len(shape) > 1 and shape[-1] % bits.group_size == 0
        return bits if fits else None


def packing_of(model: Checkpoint) -> Packing | None:
    """How the weights of `model` are packed; None for one in 16 or 32 bits, and where mlx packs them otherwise."""
    for source in (model.config, model.text_config):
        for values in filter(None, map(source.get, QUANTIZATION_KEYS)):
            if usual := _bits(_as_mlx(values)):
                return Packing(usual, _of_last_layer(values, model.whole("num_hidden_layers", 0) - 1))
    return None


def _as_mlx(values: Mapping[str, Any]) -> Mapping[str, Any]:
    method = values.get("quant_method")
    if method in METHODS:
        return METHODS[method] | {"mode": method}
    return values if method is None or method in SCALED_BY_GROUP else {}


def _bits(values: Any) -> Bits | None:
    """Bits as a configuration states them, None where it states none."""
    try:
        return Bits(int(values["group_size"]), int(values["bits"]), str(values.get("mode", "affine")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _of_last_layer(values: Mapping[str, Any], last: int) -> dict[str, Bits | None]:
    """What a configuration says of single matrices of the last layer, by their names in it."""
    layers = ((LAYER.fullmatch(key), value) for key, value in values.items() if isinstance(value, Mapping | bool))
    return {found[2]: _bits(value) for found, value in layers if found and int(found[1]) == last and value is not True}
