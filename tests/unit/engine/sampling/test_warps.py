"""Law: logits become one distribution by Hugging Face's order of warps, checked against a full sort in float64."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from fakes.products import spread
from specdec_cli.engine.sampling.cuts import top_tokens
from specdec_cli.engine.sampling.warps import Sampling, log_probs

INF = math.inf


def reference(logits, s):
    """log_probs of one row [V] in float64, over a full sort; None if a cut is too close to call."""
    logits = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        scores = np.where(logits == logits.max(), 0, (logits - logits.max()) / s.temperature)
    kept = (logits >= np.sort(logits)[-min(s.top_k or len(logits), len(logits))]) & (scores > -INF)
    if s.top_p < 1:
        mass = np.exp(scores) * kept
        values, level = np.unique(logits[kept], return_inverse=True)
        better = 1 - np.cumsum(np.bincount(level, mass[kept] / mass.sum()))
        better[-1] = 0  # nothing is better than the best
        if np.abs(better[:-1] - s.top_p).min(initial=1) < 1e-5:
            return None
        kept &= logits >= values[better < max(s.top_p, 1e-30)].min()
    if s.min_p > 0:
        if (np.abs(scores[kept] - math.log(s.min_p)) < 1e-4).any():
            return None
        kept &= scores >= math.log(s.min_p)
    return np.where(kept, scores - np.log(np.exp(scores[kept]).sum()), -INF)


def assert_law(logits, sampling):
    """Each row [V] of `logits` as the reference; returns how many could be compared."""
    rows, laws = np.array(logits.astype(mx.float32)), log_probs(logits, sampling)
    pairs = [
        (law, expected)
        for row, law in zip(rows, laws, strict=True)
        if (expected := reference(row, sampling)) is not None
    ]
    for law, expected in pairs:
        assert_close(law, expected)
    return len(pairs)


def assert_close(actual, expected):
    actual = np.array(actual, np.float64)
    same = bool(((actual == -INF) == (expected == -INF)).all())  # a bool: pytest would print the arrays at every shrink
    assert same
    kept = expected > -INF
    np.testing.assert_allclose(actual[kept], expected[kept], rtol=2e-6, atol=2e-5)


LOGITS = numpy_strategies.arrays(
    np.float32,
    st.integers(2, 200),
    elements=st.one_of(
        st.floats(-30, 30, width=32).map(lambda v: round(v, 2)), st.sampled_from([0.0, -0.0, 1.0, 1.5, -INF])
    ),
)
SAMPLING = st.builds(
    Sampling,
    temperature=st.sampled_from([0.01, 0.3, 0.7, 1.0, 1.5, 20.0, 1000.0]),
    top_k=st.one_of(st.just(0), st.integers(1, 250)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
    min_p=st.one_of(st.just(0.0), st.floats(0.001, 1.0)),
)


@example(np.array([-30.0, 2.5, 30.0], np.float32), Sampling(0.3, 0, 0.9), mx.float32)  # weighed from its best value
@settings(max_examples=30)
@given(LOGITS, SAMPLING, st.sampled_from([mx.float32, mx.float16, mx.bfloat16]))
def test_every_combination_of_cuts_equals_a_full_sort(logits, sampling, dtype):
    """With ties, -0.0, -inf, cuts wider than the vocabulary, and the half precisions that models answer in."""
    assume(logits.max() > -INF)
    row = mx.array(logits).astype(dtype)
    expected = reference(np.array(row.astype(mx.float32)), sampling)
    assume(expected is not None)
    actual = log_probs(mx.stack([row, row - 1.0]), sampling)
    assert actual.dtype == mx.float32
    assert_close(actual[0], expected)


# Cuts found on a sort of all logits, and on the k best.


V = 3_000
HALVES = [mx.float16, mx.bfloat16]


def rows_of(kind, width=V):
    """Four rows of logits [4, V] of each kind that may trouble a threshold."""
    rng = np.random.default_rng(5)
    normal = rng.normal(0, 3, (4, width))
    made = {
        "random": normal,
        "tied": rng.integers(-3, 4, (4, width)) / 2,
        "peaked": np.where(rng.random((4, width)) < 0.002, 30 + normal, normal),
        "flat": np.full((4, width), 1.25),
        "nearly flat": 1 + normal / 500,
        "around zero": normal * 1e-30,
        "both zeros": np.where(rng.random((4, width)) < 0.5, -0.0, 0.0),
        "huge": normal * 1e4,
        "masked": np.where(rng.random((4, width)) < 0.99, -INF, normal),
        "one allowed": np.where(np.arange(width) == 7, 3.0, -INF) + np.zeros((4, 1)),
        "infinite": np.where(rng.random((4, width)) < 0.01, INF, normal),
    }[kind]
    return mx.array(made.astype(np.float32))


KINDS = [
    *("random", "tied", "peaked", "flat", "nearly flat", "around zero"),
    *("both zeros", "huge", "masked", "one allowed", "infinite"),
]
NUCLEI = [
    Sampling(temperature, 0, top_p, min_p)
    for temperature in (0.7, 30.0)
    for top_p in (0.0, 0.3, 0.95, 0.999)
    for min_p in (0.0, 0.2)
]


@pytest.mark.parametrize(("kind", "dtype"), spread(KINDS, [mx.float32, *HALVES]))
def test_the_nucleus_of_every_kind_of_logits_is_that_of_the_reference(kind, dtype):
    logits = rows_of(kind).astype(dtype)
    assert sum(assert_law(logits, sampling) for sampling in NUCLEI) > 2 * len(NUCLEI)


def test_the_long_tail_of_a_wide_vocabulary_is_not_rounded_away():
    """Summed from the largest on in float32, 0.06 % of the mass was lost, and 5,000 of 81,000 tokens."""
    logits = np.random.default_rng(0).normal(0, 3, (2, 151_936)).astype(np.float32)
    masses = np.exp(logits.astype(np.float64))
    masses = -np.sort(-masses / masses.sum(-1, keepdims=True), axis=-1)
    for top_p in (0.5, 0.9, 0.999):
        kept = (np.array(log_probs(mx.array(logits), Sampling(1.0, 0, top_p))) > -INF).sum(-1)
        asked = (np.cumsum(masses, -1) - masses < top_p).sum(-1)
        assert all(abs(row[:n].sum() - row[:m].sum()) < 2e-5 for row, n, m in zip(masses, kept, asked, strict=True))


@pytest.mark.parametrize(("kind", "k", "dtype"), spread(KINDS, [1, 20, 46, 2_999], [mx.float32, *HALVES]))
def test_top_k_over_its_best_values_equals_a_sort_of_all(kind, k, dtype):
    for sampling in (Sampling(0.7, k), Sampling(0.7, k, 0.8), Sampling(0.7, k, 0.8, 0.1)):
        assert_law(rows_of(kind).astype(dtype), sampling)


@given(st.integers(0, 8), st.integers(1, 900), st.integers(0, 2**32 - 1))
def test_top_tokens_hold_the_largest_values_largest_first(k, width, seed):
    """Small integers: most values are tied, within groups and across them."""
    values = np.random.default_rng(seed).integers(0, 12, (2, max(width, k))).astype(np.float32)
    found = np.array(top_tokens(mx.array(values), k)).astype(np.int64)
    assert found.shape == (2, k)
    for row, ids in zip(values, found, strict=True):
        assert len(set(ids.tolist())) == k
        np.testing.assert_array_equal(row[ids], np.sort(row)[::-1][:k])
