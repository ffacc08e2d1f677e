"""One reply's way from logits to tokens: warps, counts and noise, against numpy."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

V = 12
TOKENS = st.lists(st.integers(0, V - 1), max_size=6)
LOGITS = np.random.default_rng(1).normal(size=(8, V)).astype(np.float32) * 3


def ids(tokens):
    return mx.array(tokens, dtype=mx.int32) if tokens else NO_TOKENS


def expected(row, prompt, answer, sampling):
    """Penalties (repetition over prompt and answer, the others over the answer), then temperature and softmax."""
    row = row.astype(np.float64).copy()
    for token in {*prompt, *answer}:
        row[token] *= sampling.repetition_penalty if row[token] < 0 else 1 / sampling.repetition_penalty
    for token in set(answer):
        row[token] -= sampling.presence_penalty + sampling.frequency_penalty * answer.count(token)
    if sampling.greedy:
        return row
    row /= sampling.temperature
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@given(prompt=TOKENS, emitted=TOKENS, uncommitted=TOKENS, pending=TOKENS)
def test_each_row_of_the_target_counts_the_prompt_what_was_emitted_and_the_guesses_before_it(
    temperature, prompt, emitted, uncommitted, pending
):
    sampling = Sampling(temperature, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.25)
    sampler = Sampler(sampling, 7, prompt, V)
    if emitted:
        sampler.commit(emitted)
    rows = len(pending) + 1
    found = np.array(sampler.for_target(mx.array(LOGITS[:rows]), ids(pending), ids(uncommitted)))
    for row in range(rows):
        answer = [*emitted, *uncommitted, *pending[:row]]
        np.testing.assert_allclose(found[row], expected(LOGITS[row], prompt, answer, sampling), atol=1e-4)


def test_noise_is_the_same_however_many_rows_are_asked_for_at_once():
    """Rows of one call, rows known already, and both together."""
    one_by_one = [np.array(Sampler(Sampling(1.0), 7, [1], V).target_noise(10 + i, 1))[0] for i in range(5)]
    for asked in ([(10, 5)], [(10, 2), (10, 5)], [(10, 1), (11, 1), (10, 5)], [(10, 5), (12, 3)]):
        sampler = Sampler(Sampling(1.0), 7, [1], V)
        for position, rows in asked:
            found = np.array(sampler.target_noise(position, rows))
            np.testing.assert_array_equal(found, one_by_one[position - 10 : position - 10 + rows])


def test_a_draft_never_draws_with_the_same_noise_twice():
    """N = 200 draws from a uniform law over 12 tokens: repeated noise would give one token."""
    sampler, log_q = Sampler(Sampling(1.0), 7, [1], V), mx.full((1, V), -np.log(V))
    tokens = [int(sampler.draw_for_draft(log_q)[0]) for _ in range(200)]
    assert set(tokens) == set(range(V))
