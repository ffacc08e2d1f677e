"""The largest of many values, against a full sort. `top_values` is tested with the warps that use it."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.sampling.cuts import GROUP, top_tokens


@given(st.integers(0, 8), st.integers(1, 900), st.integers(0, 2**32 - 1))
def test_top_tokens_hold_the_largest_values_largest_first(k, width, seed):
    """Small integers: most values are tied, within groups and across them."""
    values = np.random.default_rng(seed).integers(0, 12, (2, max(width, k))).astype(np.float32)
    found = np.array(top_tokens(mx.array(values), k)).astype(np.int64)
    assert found.shape == (2, k)
    for row, ids in zip(values, found, strict=True):
        assert len(set(ids.tolist())) == k
        np.testing.assert_array_equal(row[ids], np.sort(row)[::-1][:k])


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_where_fewer_values_are_allowed_than_asked_for_every_id_is_a_token(allowed):
    """Regression: the padding to whole groups is -inf as well, and its ids are beyond the vocabulary."""
    width = 10 * GROUP + 1
    values = np.full((1, width), -math.inf, np.float32)
    values[0, width - allowed :] = 1.0
    found = np.array(top_tokens(mx.array(values), 5))
    assert (found < width).all()
    assert set(range(width - allowed, width)) <= set(found[0].tolist())
