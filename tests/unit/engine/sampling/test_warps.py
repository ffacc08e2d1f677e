"""Law: logits become one distribution by Hugging Face's order of warps, checked against a full sort in float64."""

import math
import re
from collections import Counter

import mlx.core as mx
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from specdec_cli.engine.sampling.warps import Counts, Sampling, log_probs

INF = math.inf


def reference(logits, s, seen=(), times=()):
    """log_probs of one row [V] in float64, token by token over a full sort; None if a cut is too close to call."""
    logits = logits.astype(np.float64).copy()
    for token, addend in s.logit_bias:
        logits[token] += addend
    for token in seen:
        logits[token] *= 1 / s.repetition_penalty if logits[token] > 0 else s.repetition_penalty
    for token, n in Counter(times).items():
        logits[token] -= s.presence_penalty + n * s.frequency_penalty
    scores = (logits - logits.max()) / s.temperature
    order = np.argsort(-logits, kind="stable")
    kept = [i for i in order if not s.top_k or logits[i] >= logits[order[min(s.top_k, len(order)) - 1]]]
    if s.top_p < 1:
        mass = np.exp(scores[kept]) / np.exp(scores[kept]).sum()
        better = [sum(m for j, m in zip(kept, mass, strict=True) if logits[j] > logits[i]) for i in kept]
        if min(abs(b - s.top_p) for b in better) < 1e-5:
            return None
        kept = [i for i, b in zip(kept, better, strict=True) if b < s.top_p]
    if s.min_p > 0:
        if any(abs(scores[i] - math.log(s.min_p)) < 1e-4 for i in kept):
            return None
        kept = [i for i in kept if scores[i] >= math.log(s.min_p)]
    result = np.full(len(logits), -INF)
    result[kept] = scores[kept] - np.log(np.exp(scores[kept]).sum())
    return result


def assert_close(actual, expected):
    actual = np.array(actual, np.float64)
    assert ((actual == -INF) == (expected == -INF)).all()
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


def test_tied_tokens_are_kept_or_dropped_together():
    logits = mx.array([[1.0, 2.0, 2.0, 2.0, 0.0]])
    for cut in (Sampling(1.0, top_k=2), Sampling(1.0, top_p=0.01), Sampling(1.0, top_p=0.0), Sampling(1.0, min_p=1.0)):
        assert (log_probs(logits, cut) > -INF).tolist() == [[False, True, True, True, False]]


PENALTIES = Sampling(0.7, 0, 0.9, 0.0, 1.3, 0.5, 0.25, ((2, 3.0), (5, -INF), (7, 1.5)))


def operations(array, folder):
    """How often each operation occurs in the graph of `array`."""
    path = folder / "graph.dot"
    mx.export_to_dot(str(path), array)
    return Counter(re.findall(r'label ="(\w+)', path.read_text()))


def test_a_warp_that_is_off_adds_no_operation_and_orders_nothing(tmp_path):
    logits, counts = mx.zeros((2, 500)), Counts.start(PENALTIES, [1], 500)
    mx.eval(logits, counts.seen, counts.times)
    plain = operations(log_probs(logits, Sampling(1.0)), tmp_path)
    assert plain and operations(log_probs(logits, Sampling(1.0, top_k=500), counts), tmp_path) == plain
    assert sum(plain.values()) < 15
    assert not {"Sort", "Partition"} & {*plain}
