"""Floats as integers in the same order, and how often each occurs. Law: exact, and -0.0 is 0.0.

Letters: N rows, V columns.
"""

from __future__ import annotations

import math
from functools import cache

import mlx.core as mx

from specdec_cli.engine.device import fused

HALF_VALUES = 2**16  # that a 16-bit float can have
KEY_TYPES = {16: mx.uint16, 32: mx.uint32}


def histogram(logits: mx.array) -> mx.array:
    """How many of a row's 16-bit `logits` [N, V] have each of the values [N, 65,536]. Exact: integers are added."""
    n = logits.shape[0]
    nothing = mx.broadcast_to(mx.array(0, mx.int32), (n * HALF_VALUES,))
    counts: mx.array = nothing.at[_places(logits).reshape(-1)].add(1).reshape(n, HALF_VALUES)
    return counts


def _key(logits: mx.array) -> mx.array:
    bits = 8 * logits.dtype.size
    raw = logits.view(KEY_TYPES[bits])
    raw = mx.where(raw == 2 ** (bits - 1), 0, raw)  # -0.0 and 0.0 are one value
    # Negative floats count downwards: all their bits flip, of the others only the sign.
    key: mx.array = raw ^ ((raw >> (bits - 1)) * (2 ** (bits - 1) - 1) + 2 ** (bits - 1))
    return key


# Unsigned integers [N, V] in the order of `logits` [N, V], as wide as their floats.
keys_of = fused(_key)


@fused
def _places(logits: mx.array) -> mx.array:
    """The places [N, V] of 16-bit `logits` in N rows of 65,536 values in ascending order."""
    return _key(logits).astype(mx.uint32) + mx.array([[row * HALF_VALUES] for row in range(logits.shape[0])], mx.uint32)


@cache
def half_values(dtype: mx.Dtype) -> mx.array:
    """All values [1, 65,536] of a 16-bit float in ascending order, as float32; those that are no number as ±inf."""
    places = mx.arange(HALF_VALUES)
    raw = mx.where(places < 2**15, HALF_VALUES - 1 - places, places - 2**15)
    values = raw.astype(mx.uint16).view(dtype).astype(mx.float32)
    values = mx.where(mx.isnan(values), mx.where(places < 2**15, -math.inf, math.inf), values)[None]
    mx.eval(values)  # a constant, usable in every thread
    return values
