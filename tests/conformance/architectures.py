"""Every text decoder of the installed mlx-lm that can be verified, as a tiny network with random weights.

`load.UNVERIFIABLE` has the others, with the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models

from specdec_cli.engine import selftest

MODEL = re.compile(r"^(class|from .* import) .*\bModel\b", re.M)
FOLDER = Path(__file__).parent
LISTS = ("a_g.toml", "h_m.toml", "n_z.toml")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One module of `mlx_lm.models` and a tiny `config` for it.

    `window` is how many positions its shortest window or chunk holds (None without one), `gain` scales the random
    weights, `noise` moves a draft made of it away, `metal_only`: mlx-lm has no other code for it.
    """

    name: str
    config: Mapping[str, Any]
    window: int | None = None
    gain: float = 1.0
    noise: float = 0.1
    metal_only: bool = False


@cache
def architectures() -> dict[str, Architecture]:
    """All listed architectures by module name."""
    listed: dict[str, Architecture] = {}
    for name in LISTS:
        entries = tomllib.loads((FOLDER / name).read_text("utf-8"))
        listed |= {module: Architecture(module, **entry) for module, entry in entries.items()}
    return listed


def installed() -> list[str]:
    """Modules of the installed mlx-lm that define a model class. Read, not imported: one of them exits on import."""
    sources = {file.name.removesuffix(".py"): file for file in files(mlx_lm.models).iterdir()}
    return sorted(name for name, file in sources.items() if file.is_file() and MODEL.search(file.read_text("utf-8")))


def tiny_network(architecture: Architecture, seed: int, noise: float = 0.0) -> nn.Module:
    """`architecture` in float32 with random weights of `seed`, evaluated; `noise` moves every matrix by that share."""
    draw = partial(draw_weight, gain=architecture.gain, noise=noise)
    return selftest.random_network(architecture.config, seed, draw)


def draw_weight(path: str, value: mx.array, keys: list[mx.array], gain: float, noise: float) -> mx.array:
    """As the self-test draws it, and as the architectures need it that are not among its families."""
    special = _recurrent(path, value, keys[0])
    if special is None:
        special = _packed(path, value, *keys, gain, noise)
    if special is not None or not mx.issubdtype(value.dtype, mx.floating):
        return value if special is None else special
    drawn = selftest.draw_weight(path, value, keys[0], gain)
    if value.ndim < 2 or path.endswith("A_log"):
        return drawn
    return drawn + noise * selftest.draw_weight(path, value, keys[1], gain)


def _recurrent(path: str, value: mx.array, key: mx.array) -> mx.array | None:
    """Decays that remember, and what is mixed with the previous position."""
    if path.endswith(("recurrent_param", "w_lora.lora.2.bias")):
        return mx.random.uniform(-5.0, -2.0, value.shape, key=key)
    if path.endswith((".x_r", ".x_w", ".x_k", ".x_v", ".x_a", ".x_g")):  # shares of the previous position
        return mx.random.uniform(0.0, 1.0, value.shape, key=key)
    if path.endswith(".r_k"):  # how far the current position bypasses the state
        return mx.multiply(0.1, mx.random.normal(value.shape, key=key))
    return None


def _packed(
    path: str, value: mx.array, first: mx.array, second: mx.array, gain: float, noise: float
) -> mx.array | None:
    """Numbers of a few bits in one word, and what belongs to them."""
    if path.endswith(".signs"):
        return mx.where(mx.random.bernoulli(0.5, value.shape, key=first), 1.0, -1.0)
    if path.endswith(".weight") and value.dtype == mx.uint8:  # four ternary numbers
        codes = mx.random.randint(0, 3, (*value.shape, 4), mx.uint8, key=first)
        return mx.left_shift(codes, mx.array([0, 2, 4, 6], mx.uint8)).sum(-1).astype(mx.uint8)
    if path.endswith(".weight") and value.dtype == mx.uint32:
        return mx.random.randint(0, 256, (*value.shape, value.itemsize), mx.uint8, key=first).view(value.dtype)[..., 0]
    if path.endswith((".scales", ".biases")) and value.ndim > 1:  # of 2-bit numbers in groups of 128, centred
        scale = gain / (128 * value.shape[-1]) ** 0.5 * (-1.5 if path.endswith(".biases") else 1.0)
        moved = 0.1 * mx.random.normal(value.shape, key=first) + noise * mx.random.normal(value.shape, key=second)
        return mx.multiply(scale, 1.0 + moved)
    return None
