"""The largest of many values. Law: exact, without ordering all of them, and nothing is read back.

Letters: N rows, V columns, k of them wanted.
"""

from __future__ import annotations

import math

import mlx.core as mx

GROUP = 64  # columns searched as one; divides the width of nearly every published vocabulary


def top_values(values: mx.array, k: int) -> mx.array:
    """The k largest of each row of `values` [N, V], ascending: [N, k]. Exact, and without ordering V columns."""
    if k * GROUP < values.shape[-1]:
        values = _in_best_groups(values, k)[0]
    return mx.sort(mx.topk(values, k, axis=-1), axis=-1)


def top_tokens(values: mx.array, k: int) -> mx.array:
    """The ids of the k largest of each row of `values` [N, V], largest first: [N, k]. Which of equal ones is open."""
    width = values.shape[-1]
    if not 0 < k * GROUP < width:
        return mx.argsort(-values, axis=-1)[:, :k]
    found, groups = _in_best_groups(values, k)
    ids = (groups[..., None] * GROUP + mx.arange(GROUP, dtype=mx.uint32)).reshape(found.shape)
    best = mx.take_along_axis(ids, mx.argsort(-found, axis=-1)[:, :k], axis=-1)
    return mx.minimum(best, width - 1)  # beside values of -inf, the padding is among the best


def _in_best_groups(values: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """(values [N, k * GROUP] that hold the k largest of each row, the groups [N, k] of columns that they come from).

    A value outside the k groups with the largest maxima is at most each of those k maxima.
    """
    n, width = values.shape
    if width % GROUP:
        values = mx.pad(values, [(0, 0), (0, -width % GROUP)], constant_values=-math.inf)
    groups = values.reshape(n, -1, GROUP)
    chosen = mx.argpartition(mx.max(groups, axis=-1), -k, axis=-1)[:, -k:]
    columns = mx.broadcast_to(chosen[..., None], (n, k, GROUP))
    return mx.take_along_axis(groups, columns, axis=1).reshape(n, -1), chosen
