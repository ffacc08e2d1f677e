"""How matrices are packed into a few bits, by a configuration and the headers of the files (pure).

MLX stores a packed matrix [N, K] as words, its `weight`, and as `scales` [N, K / group size]; gpt-oss was published
with `blocks` in place of words. A configuration has a mode, bits and a group size for all matrices, and others by path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Literal, NamedTuple

from specdec_cli.core.safetensors import Stored
from specdec_cli.models.checkpoint import QUANTIZATION_KEYS


class Packing(NamedTuple):
    """mlx's words for it: so many numbers in a group share a scale."""

    mode: str
    bits: int
    group_size: int


class Packed(NamedTuple):
    """A matrix [rows, columns], or several stored as one: `experts` to choose from, or `latent` ones."""

    packing: Packing
    rows: int
    columns: int
    stored_as: Literal["matrix", "experts", "latent"]


# mlx's modes with scales of one byte, by the bits that share one: each allows nothing else.
BYTE_SCALES = {64: Packing("nvfp4", 4, 16), 128: Packing("mxfp4", 4, 32), 256: Packing("mxfp8", 8, 32)}
BY_METHOD = {packing.mode: packing for packing in BYTE_SCALES.values()}
# Matrices of attention over latents, all of which are multiplied (mlx-lm, models/mla.py).
LATENT = re.compile(r"(embed_q|unembed_out)$")


def packing_of(config: Mapping[str, Any], path: str) -> Packing | None:
    """Of the module at `path`, as mlx-lm reads a configuration; None where it does not say."""
    given: Mapping[str, Any] = next((config[key] for key in QUANTIZATION_KEYS if config.get(key)), {})
    if found := BY_METHOD.get(str(given.get("quant_method"))):
        return found
    values = given[path] if isinstance(given.get(path), Mapping) else given
    found = Packing(str(values.get("mode", "affine")), values.get("bits", 0), values.get("group_size", 64))
    return found if all(type(size) is int and size > 0 for size in found[1:]) else None


def bits_a_weight(config: Mapping[str, Any], path: str) -> float:
    """Of the matrix at `path`, its scales included; of one that is not packed, those of the declared type, else 16."""
    if packing := packing_of(config, path):
        return packing.bits + (32 if packing.mode == "affine" else 8) / packing.group_size
    return 32 if config.get("dtype", config.get("torch_dtype")) == "float32" else 16


def packed(tensors: Mapping[str, Stored], config: Mapping[str, Any]) -> Iterator[Packed]:
    """Each packed matrix among `tensors`. Where the configuration contradicts them, mlx-lm believes them, as here."""
    for name, scales in tensors.items():
        path = re.sub(r"[._]scales$", "", name)
        words = tensors.get(f"{path}.weight") or tensors.get(f"{path}_blocks")
        if path == name or words is None or len(scales.shape) < 2:
            continue
        group_bits, said = 8 * words.size_bytes // prod(scales.shape), packing_of(config, path)
        group_size = said.group_size if said else 64
        affine = Packing("affine", group_bits // group_size, group_size)
        if packing := BYTE_SCALES.get(group_bits) if scales.dtype == "U8" else affine:
            stored_as: Any = "matrix" if len(scales.shape) == 2 else "latent" if LATENT.search(path) else "experts"
            yield Packed(packing, scales.shape[-2], scales.shape[-1] * packing.group_size, stored_as)
