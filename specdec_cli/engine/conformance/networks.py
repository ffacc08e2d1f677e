"""Tiny random networks whose greedy output varies, and perturbed copies of them that agree now and then."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import _get_classes

from specdec_cli.engine.architectures import Architecture


def tiny_network(architecture: Architecture, seed: int, noise: float = 0.0) -> nn.Module:
    """`architecture` in float32 with random weights of `seed`, evaluated; `noise` moves every matrix by that share."""
    model_class, args_class = _get_classes(dict(architecture.config))
    mx.random.seed(seed)  # biases and some decays start random
    network = model_class(args_class.from_dict(dict(architecture.config)))
    key = mx.random.key(seed)
    weights = []
    for path, value in sorted(tree_flatten(network.parameters())):
        key, first, second = mx.random.split(key, 3)
        weights.append((path, draw_weight(path, value, first, second, architecture.gain, noise)))
    network.update(tree_unflatten(weights))
    mx.eval(network.parameters())
    return network


def draw_weight(path: str, value: mx.array, first: mx.array, second: mx.array, gain: float, noise: float) -> mx.array:
    """Matrices are drawn anew, scaled by their fan-in; vectors (norms, biases, decays) keep near their start."""
    special = _recurrent(path, value, first)
    if special is None:
        special = _packed(path, value, first, second, gain, noise)
    if special is not None or not mx.issubdtype(value.dtype, mx.floating):
        return value if special is None else special
    moved = mx.random.normal(value.shape, key=first)
    if value.ndim < 2:
        return mx.add(value.astype(mx.float32), 0.1 * moved)
    moved = moved + noise * mx.random.normal(value.shape, key=second)
    return mx.multiply(gain / value.shape[-1] ** 0.5, moved)


def _recurrent(path: str, value: mx.array, key: mx.array) -> mx.array | None:
    """Decays: as they start, most states would forget everything in a position or two, and a lost rollback too."""
    if path.endswith("A_log"):
        return mx.random.uniform(-3.0, 0.0, value.shape, key=key)
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
