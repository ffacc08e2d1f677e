"""Each kernel that a pass of a few rows takes, and every family of networks: does this device say what the CPU says?

A GPU that is wrong everywhere agrees with itself. The reference is the same computation on the CPU stream. All of it is
in float32, where nothing but the order of sums differs: the self-test compares other precisions with float32.
Letters: n rows, [n, D] inputs, [O, D] weights, T context.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import mlx.core as mx

from specdec_cli.engine.planning.chips import AFFINE, Packing
from specdec_cli.engine.selftest import TOKENS, SelftestFamily, blocks, network_in, passes, text

# n -> [n, ..] on the default device.
Compute = Callable[[int], mx.array]
# Rows that take one product each, one read for several, the last ones before a tile and the first in one.
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 17, 32)
# (D, O): where tiles begin depends on the wider side; 64 is a kernel of its own.
SIZES = ((512, 1024), (512, 4096), (512, 4608), (64, 512))
# (mode, bits) and the weights that share a scale.
PACKINGS: dict[str, tuple[Packing, int]] = {
    "not packed": (None, 0),
    "4 bits": ((AFFINE, 4), 64),
    "8 bits": ((AFFINE, 8), 64),
    "mxfp4": (("mxfp4", 4), 32),
    "nvfp4": (("nvfp4", 4), 16),
    "mxfp8": (("mxfp8", 8), 32),
}
# (head size, queries a key head); contexts below and above where mlx splits the keys (sdpa_vector_2pass).
HEADS, CONTEXTS = ((64, 4), (128, 8), (256, 2), (80, 1)), (100, 1500)
KEY_HEADS = 2
# Of the largest value, and of a logit's deviation: a hundred times what the order of sums was seen to change.
APART, LOGITS_APART = 1e-4, 5e-3


@contextmanager
def on_cpu() -> Iterator[None]:
    """Compute on the CPU in this context. On a Mac nothing is fused in it, by anybody.

    Fusing there takes a C++ compiler, and without Apple's command line tools macOS opens a window that offers them.
    """
    fuses_there = sys.platform != "darwin" or "MLX_DISABLE_COMPILE" in os.environ
    if not fuses_there:
        mx.disable_compile()
    try:
        with mx.stream(mx.cpu):
            yield
    finally:
        if not fuses_there:
            mx.enable_compile()


def difference(compute: Compute) -> tuple[float, int]:
    """(how far this device is from the CPU, of the largest value; at so many rows), the worst of all row counts."""
    worst, rows = 0.0, 0
    for n in ROWS:
        here = compute(n)
        mx.eval(here)
        with on_cpu():
            exact = compute(n)
            apart = float(mx.max(mx.abs(here - exact)) / mx.max(mx.abs(exact)))
        if not apart <= worst:  # nor is what is no number
            worst, rows = apart, n
    return worst, rows


def kernels() -> dict[str, Callable[[], Compute]]:
    """By name what makes them: products of every packing and size, then attention."""
    makers: dict[str, Callable[[], Compute]] = {}
    for name, (packing, group) in PACKINGS.items():
        for inner, outer in SIZES:
            makers[f"products, {name}, {outer} × {inner}"] = partial(product, packing, group, inner, outer)
    for size, share in HEADS:
        for context in CONTEXTS:
            name = f"attention, head size {size}, {share} queries a key, {context} tokens"
            makers[name] = partial(attention, size, share, context)
    return makers


def product(packing: Packing, group: int, inner: int, outer: int) -> Compute:
    """n -> [n, O]: n rows times weights."""
    with mx.stream(mx.cpu):
        keys = mx.random.split(mx.random.key(inner * outer), 2)
        weights = mx.random.normal((outer, inner), key=keys[0]) / inner**0.5
        inputs = mx.random.normal((max(ROWS), inner), key=keys[1])
        mx.eval(weights, inputs)
        if packing is None:
            return lambda n: inputs[:n] @ weights.T
        mode, bits = packing
        packed = mx.quantize(weights, group_size=group, bits=bits, mode=mode)
        mx.eval(packed)

    def multiply(n: int) -> mx.array:
        return mx.quantized_matmul(inputs[:n], *packed, transpose=True, group_size=group, bits=bits, mode=mode)

    return multiply


def attention(size: int, share: int, context: int) -> Compute:
    """n -> [n, H × size]: n causal queries over keys and values [1, KEY_HEADS, T, size]."""
    with mx.stream(mx.cpu):
        shapes = ((KEY_HEADS * share, max(ROWS)), (KEY_HEADS, context), (KEY_HEADS, context))
        keys = mx.random.split(mx.random.key(size * context), len(shapes))
        q, k, v = (mx.random.normal((1, *shape, size), key=key) for shape, key in zip(shapes, keys, strict=True))
        mx.eval(q, k, v)

    def attend(n: int) -> mx.array:
        out = mx.fast.scaled_dot_product_attention(q[:, :, :n], k, v, scale=size**-0.5, mask="causal")
        return out.swapaxes(1, 2).reshape(n, -1)

    return attend


def family_difference(family: SelftestFamily) -> float:
    """In deviations of a logit, of one text through the family's network in 4 bits and float32, here and there.

    The passes have the rounds' rows.
    """
    network = network_in(family, "4 bits")
    network.set_dtype(mx.float32)
    chunks = blocks(text(network(mx.zeros((1, 1), mx.int32)).shape[-1])[:TOKENS])
    here = passes(network, chunks)
    with on_cpu():
        exact = passes(network, chunks)
        return float(mx.max(mx.abs(here - exact)) / mx.std(exact))
