"""Floats as integers in the same order."""

import math

import mlx.core as mx
import numpy as np
import pytest

from specdec_cli.engine.sampling.cuts import HALF_VALUES, half_values, histogram, keys_of

HALVES = [mx.float16, mx.bfloat16]


def all_halves(dtype):
    """Each 16-bit float that is a number, as float32 in numpy, and as it is."""
    every = mx.arange(HALF_VALUES).astype(mx.uint16).view(dtype)
    wide = np.array(every.astype(mx.float32))
    numbers = ~np.isnan(wide)
    return wide[numbers], every[mx.array(np.flatnonzero(numbers))]


@pytest.mark.parametrize("dtype", HALVES)
def test_keys_order_every_16_bit_float_and_zeros_are_one(dtype):
    wide, halves = all_halves(dtype)
    keys = np.array(keys_of(halves), np.int64)
    order = np.argsort(wide, kind="stable")
    np.testing.assert_array_equal(np.diff(keys[order]) > 0, wide[order][1:] != wide[order][:-1])


def test_keys_order_float32():
    values = np.random.default_rng(0).normal(0, 1, 1_950) * 10.0 ** np.arange(-40, 38).repeat(25)
    values = np.sort(np.array([*values, -math.inf, math.inf, 0.0, -0.0], np.float32))
    keys = np.array(keys_of(mx.array(values)), np.int64)
    np.testing.assert_array_equal(np.diff(keys) > 0, values[1:] != values[:-1])


@pytest.mark.parametrize("dtype", HALVES)
def test_half_values_ascend_and_each_stands_at_its_key(dtype):
    values = np.array(half_values(dtype))[0]
    assert values.shape == (HALF_VALUES,) and not np.isnan(values).any() and (values[1:] >= values[:-1]).all()
    wide, halves = all_halves(dtype)
    np.testing.assert_array_equal(values[np.array(keys_of(halves), np.int64)], wide)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_histogram_counts_each_row_apart(dtype):
    logits = mx.array(np.random.default_rng(1).integers(-40, 40, (3, 5_000)).astype(np.float32)).astype(dtype)
    counts = np.array(histogram(logits))
    assert counts.sum(-1).tolist() == [5_000] * 3
    for row, count in zip(np.array(logits.astype(mx.float32)), counts, strict=True):
        values, times = np.unique(row, return_counts=True)
        at = np.flatnonzero(count)
        np.testing.assert_array_equal(np.array(half_values(dtype))[0][at], values)
        np.testing.assert_array_equal(count[at], times)
