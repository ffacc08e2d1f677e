"""Law: whatever the draft's law, the emitted sequence follows the target's.

The plans are enumerated: for tables p(. | prefix) and q(. | prefix) over a vocabulary of V tokens, every draft of K
tokens is planned, and the law of the next K + 1 tokens is added up in float64. Where a round emits fewer, the target
itself continues.
"""

import itertools
import math

import mlx.core as mx
import numpy as np
import pytest

from fakes.broken_rules import log, raw_residual, swapped, tokens_odds_under_block, tokens_residual_under_block
from fakes.products import every
from specdec_cli.engine.sampling.rejection import plan_block, plan_token

SHAPES = [(2, 1), (2, 4), (3, 3), (4, 2), (5, 2), (8, 1), (8, 2), (4, 4)]
KINDS = ["dense", "sparse", "disjoint", "equal", "near", "one-hot"]


def laws_given_prefix(rng, kind, width, depth):
    """Tables (p, q): p[i] and q[i] have shape [V] * i + [V], one row for every prefix of i tokens."""
    shape = (width,) * depth
    p = rng.dirichlet(np.full(width, 0.3 if kind == "sparse" else 1.0), shape)
    q = rng.dirichlet(np.full(width, 0.3 if kind == "sparse" else 1.0), shape)
    if kind == "sparse":
        p, q = (np.where(t < min(0.1, 0.9 / width), 0, t) for t in (p, q))
    if kind == "disjoint":
        p, q = p * (np.arange(width) % 2), q * (np.arange(width) % 2 == 0)
    if kind == "equal":
        q = p
    if kind == "near":
        q = p * (1 + 1e-3 * q)
    if kind == "one-hot":
        q = np.eye(width)[rng.integers(0, width, shape)]
    return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)


def tables(seed, kind, width, k):
    rng = np.random.default_rng(seed)
    both = [laws_given_prefix(rng, kind, width, depth) for depth in range(k + 1)]
    return [p for p, _ in both], [q for _, q in both][:k]


def planned(plan, p, q, draft, one_hot):
    log_q = None if one_hot else log([table[draft[:i]] for i, table in enumerate(q)])
    return plan(mx.array(draft), log_q, log([table[draft[:i]] for i, table in enumerate(p)]))


def odds_of_length(plan, rule):
    """Probability [K + 1] that exactly 0 … K draft tokens are accepted."""
    accept = np.array(plan.accept, np.float64)
    if rule == "token":
        return np.append(1.0, np.cumprod(accept)) * np.append(1 - accept, 1.0)
    return np.append(1.0, accept) * np.append(np.cumprod((1 - accept)[::-1])[::-1], 1.0)


def target_law(p):
    law = np.ones(())
    for table in p:
        law = law[..., None] * table
    return law


def emitted_law(plan, rule, p, q, one_hot=False):
    """The law of the next K + 1 tokens, shape [V] * (K + 1), and the expected number of accepted tokens."""
    k, width = len(q), p[0].size
    emitted = [np.zeros((width,) * (i + 1)) for i in range(k + 1)]
    expected = 0.0
    for draft in itertools.product(range(width), repeat=k):
        odds = math.prod(q[i][draft[:i]][draft[i]] for i in range(k))
        if odds == 0:
            continue
        made = planned(plan, p, q, draft, one_hot)
        lengths = odds * odds_of_length(made, rule)
        nexts = np.exp(np.array(made.residual_log(mx.arange(k + 1)), np.float64))
        expected += lengths @ np.arange(k + 1)
        for i in range(k + 1):
            emitted[i][draft[:i]] += lengths[i] * nexts[i]
    law = emitted[0]
    for i in range(1, k + 1):
        law = law[..., None] * p[i] + emitted[i]
    return law, expected


def assert_lossless(plan, rule, p, q, one_hot=False):
    law, expected = emitted_law(plan, rule, p, q, one_hot)
    assert np.isfinite(law).all()
    assert 0.5 * np.abs(law - target_law(p)).sum() < 1e-6
    return expected


@pytest.mark.parametrize(("kind", "shape"), every(KINDS, SHAPES))
def test_the_emitted_sequence_follows_the_target_and_block_accepts_no_less(kind, shape):
    width, k = shape
    p, q = tables(width * 10 + k, kind, width, k)
    token = assert_lossless(plan_token, "token", p, q)
    block = assert_lossless(plan_block, "block", p, q)
    assert block >= token - 1e-6
    if kind == "equal":
        assert min(token, block) > k - 1e-5
    if kind == "disjoint":
        assert max(token, block) == 0


def test_the_papers_example_accepts_10_9_by_token_and_11_9_by_block():
    """Sun et al. 2024, section 3: two tokens, p = (1/3, 2/3), q = (2/3, 1/3) in every context, K = 2."""
    p, q = np.array([1, 2]) / 3, np.array([2, 1]) / 3
    p, q = (
        [np.broadcast_to(p, (2,) * (i + 1)) for i in range(3)],
        [np.broadcast_to(q, (2,) * (i + 1)) for i in range(2)],
    )
    assert assert_lossless(plan_token, "token", p, q) == pytest.approx(10 / 9, abs=1e-6)
    assert assert_lossless(plan_block, "block", p, q) == pytest.approx(11 / 9, abs=1e-6)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (raw_residual(plan_token), "token"),
        (raw_residual(plan_block), "block"),
        (swapped(plan_token), "token"),
        (swapped(plan_block), "block"),
        (tokens_residual_under_block, "block"),
        (tokens_odds_under_block, "block"),
    ],
)
def test_the_enumeration_rejects_broken_rules(broken, rule):
    """Negative controls of the test above, on the same tables; the last two are vllm-ascend#7807's."""
    p, q = tables(44, "dense", 4, 2)
    with pytest.raises(AssertionError):
        assert_lossless(broken, rule, p, q)


@pytest.mark.parametrize("plan", [plan_token, plan_block])
def test_edges_give_finite_odds_and_normalised_residuals(plan):
    """q(x) = 0 for a drafted x, p(x) = 0, both, a residual without mass, subnormal and vanishing probabilities."""
    inf = math.inf
    rows_p = mx.array([[0.0, -inf, -inf], [-inf, 0.0, -inf], [-1e-8, -19.0, -200.0], [-200.0, -1e-8, -19.0]])
    rows_q = mx.array([[0.0, -inf, -inf], [-inf, -inf, 0.0], [-1e-8, -200.0, -19.0]])
    for draft in itertools.product(range(3), repeat=3):
        for log_q in (rows_q, None):
            made = plan(mx.array(draft), log_q, rows_p)
            accept = np.array(made.accept)
            residual = np.array(made.residual_log(mx.arange(4)), np.float64)
            assert ((accept >= 0) & (accept <= 1)).all()
            assert np.exp(residual).sum(-1) == pytest.approx(np.ones(4), abs=1e-6)
    accept = plan_token(mx.array([1, 1]), rows_q[:2], rows_p[:3]).accept
    assert accept.tolist() == [0, 1]  # neither law has token 1 at first; then only p has it


@pytest.mark.parametrize("k", [1, 4, 16])
def test_blocks_weights_are_those_of_the_papers_recursion_bit_for_bit(k):
    """w_i = min(1, w_{i-1} p / q), one step after the other, in float32, with laws that lack the drafted token."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p, q = (np.where(rng.random(k) < 0.1, -math.inf, -3 * rng.random(k)).astype(np.float32) for _ in range(2))
        rows = [mx.array(np.stack([law, np.zeros(k, np.float32)], axis=1)) for law in (p, q)]
        log_p, log_q = mx.concatenate([rows[0], mx.zeros((1, 2))]), rows[1]
        weight = plan_block(mx.zeros(k, mx.int32), log_q, log_p).weight
        expected = [mx.array(0.0)]
        for i in range(k):
            expected.append(mx.minimum(expected[-1] + (log_p[i, 0] - mx.maximum(log_q[i, 0], -1e30)), 0.0))
        np.testing.assert_array_equal(np.array(weight), np.array(mx.exp(mx.stack(expected))))
