"""Logits to log-probabilities, with the cuts top-k, top-p and min-p.

Law: each cut is a threshold on the logits, so tokens of equal logits are kept or dropped together; exact for every
input, and nothing is read back. A row's result depends on that row alone, bit for bit.
Letters: N rows, V vocabulary width, L levels: logits of a row in ascending order, all of them or the k best.

The work over V columns is a handful of kernels, because on a GPU each costs more to launch than to run. So with top-k,
which most models ask for, thresholds are found on the k best values. Top-p without it sorts all V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx

from specdec_cli.engine import device
from specdec_cli.engine.device import fused

SMALLEST = 2.0**-126  # below it, float32 is subnormal and some devices read zero


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Temperature and cuts as the kernels take them: arrays of no dimension, so that one kernel serves all values.

    `floor` is the least score that min-p keeps, -inf where it is off; a score is (logit - best logit) / temperature.
    """

    temperature: mx.array
    top_k: int
    top_p: mx.array | None
    floor: mx.array | None


@lru_cache(maxsize=64)
def make_cuts(temperature: float, top_k: int, top_p: float, min_p: float) -> Cuts:
    """With `top_k` 0, `top_p` 1 and `min_p` 0 for off. At `top_p` 0 the best token is kept."""
    return Cuts(
        mx.array(max(temperature, SMALLEST)),
        top_k,
        mx.array(max(top_p, SMALLEST)) if top_p < 1.0 else None,
        mx.array(min(math.log(min_p), 0.0)) if min_p > 0.0 else None,
    )


def cut_log_probs(logits: mx.array, cuts: Cuts) -> mx.array:
    """Normalised log-probabilities [N, V], float32, of `logits` [N, V]; -inf for what the cuts drop."""
    if 0 < cuts.top_k < logits.shape[-1]:
        best_values = top_values(logits, cuts.top_k)
        kept = mx.sum(logits >= best_values[:, :1], axis=-1, keepdims=True)
        best_values = _widen(best_values)
        masses = _masses_of_best(best_values, kept, cuts.temperature)
        return _above_threshold(logits, best_values, best_values[:, -1:], masses, cuts)
    wide = _widen(logits)
    if cuts.top_p is None:
        return _all_but_floor(wide, mx.max(wide, axis=-1, keepdims=True), cuts)
    values = mx.sort(wide, axis=-1)
    best = values[:, -1:]
    return _above_threshold(wide, values, best, _masses(values, best, cuts.temperature), cuts)


def _widen(logits: mx.array) -> mx.array:
    """In float32 where each kernel that takes `logits` would convert them; fused ones do it as they read."""
    return logits if device.fuses() else logits.astype(mx.float32)


def _all_but_floor(logits: mx.array, best: mx.array, cuts: Cuts) -> mx.array:
    if cuts.floor is None:
        scores, weights = _weigh(logits, best, cuts.temperature)
    else:
        scores, weights = _weigh_from(logits, best, cuts.temperature, cuts.floor)
    # The best score is 0 and is never cut, so the sum is at least 1.
    return _normalise(scores, mx.sum(weights, axis=-1, keepdims=True))


def _above_threshold(logits: mx.array, values: mx.array, best: mx.array, masses: mx.array, cuts: Cuts) -> mx.array:
    """The law of the levels `values` [N, L] of `masses` [N, L], cut by top-p and min-p, over the tokens [N, V]."""
    threshold = values[:, :1]
    if cuts.top_p is not None:
        threshold = _least(_nucleus(values, mx.cumsum(masses, axis=-1), cuts.top_p))
    if cuts.floor is not None:
        threshold = _least(_from(values, best, cuts.temperature, cuts.floor, threshold))
    remaining = masses
    if cuts.top_p is not None or cuts.floor is not None:
        remaining = _masses_from(values, masses, threshold)
    return _law(logits, best, cuts.temperature, threshold, mx.sum(remaining, axis=-1, keepdims=True))


def _least(values: mx.array) -> mx.array:
    least: mx.array = mx.min(values, axis=-1, keepdims=True)
    return least


def _scores(values: mx.array, best: mx.array, temperature: mx.array) -> mx.array:
    """(logit - best logit) / temperature, float32. Subtracting first keeps a tiny temperature from overflowing."""
    values, best = values.astype(mx.float32), best.astype(mx.float32)
    gaps = mx.where(values == best, 0.0, values - best)  # inf - inf would be NaN
    return gaps / temperature


@fused
def _weigh(logits: mx.array, best: mx.array, temperature: mx.array) -> tuple[mx.array, mx.array]:
    scores = _scores(logits, best, temperature)
    return scores, mx.exp(scores)


@fused
def _weigh_from(logits: mx.array, best: mx.array, temperature: mx.array, floor: mx.array) -> tuple[mx.array, mx.array]:
    scores = _scores(logits, best, temperature)
    scores = mx.where(scores >= floor, scores, -math.inf)
    return scores, mx.exp(scores)


@fused
def _normalise(scores: mx.array, mass: mx.array) -> mx.array:
    return scores - mx.log(mass)


@fused
def _law(logits: mx.array, best: mx.array, temperature: mx.array, threshold: mx.array, mass: mx.array) -> mx.array:
    kept = logits.astype(mx.float32) >= threshold.astype(mx.float32)
    return mx.where(kept, _scores(logits, best, temperature) - mx.log(mass), -math.inf)


@fused
def _masses(values: mx.array, best: mx.array, temperature: mx.array) -> mx.array:
    return mx.exp(_scores(values, best, temperature))


@fused
def _masses_of_best(values: mx.array, kept: mx.array, temperature: mx.array) -> mx.array:
    """Of the k best `values` [N, k]; `kept` [N, 1] tokens are among them or tie with the last: it counts for those."""
    k = values.shape[-1]
    counts = mx.where(mx.array([True] + [False] * (k - 1)), kept - (k - 1), 1)
    return counts * mx.exp(_scores(values, values[:, -1:], temperature))


@fused
def _nucleus(values: mx.array, reached: mx.array, top_p: mx.array) -> mx.array:
    """`values` where top-p keeps them, else inf: the mass of all strictly better tokens is < top_p.

    Holtzman et al., arXiv:1904.09751: the smallest set of the best tokens whose mass reaches top_p. Equal values are
    beaten by different masses here; the threshold is the least kept value, so the group enters by its first member.
    `reached` is the mass of each value and all below: summed from the least on, a long tail is not rounded away.
    """
    total = reached[:, -1:]
    return mx.where(total - reached < top_p * total, values, math.inf).astype(mx.float32)


@fused
def _from(values: mx.array, best: mx.array, temperature: mx.array, floor: mx.array, threshold: mx.array) -> mx.array:
    """`values` where min-p and `threshold` keep them, else inf."""
    values = values.astype(mx.float32)
    kept = (_scores(values, best, temperature) >= floor) & (values >= threshold.astype(mx.float32))
    return mx.where(kept, values, math.inf)


@fused
def _masses_from(values: mx.array, masses: mx.array, threshold: mx.array) -> mx.array:
    return mx.where(values.astype(mx.float32) >= threshold, masses, 0.0)


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
