"""One reply's way from logits to tokens: warps, counts, noise, and log-probabilities, against numpy."""

import math
import time

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.dispatches import CAN_FUSE
from fakes.drafting import drafters_of
from fakes.models import tiny_network
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.noise import Noise, attempt_seed
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


# Noise: a function of seed, stream and position, of its stated distribution, into the tails.


needs_fusing = pytest.mark.skipif(not CAN_FUSE, reason="mlx cannot fuse here: a CPU without a C++ compiler")


def test_noise_is_a_function_of_seed_stream_and_position_alone():
    draws = {
        (seed, stream, position): tuple(Noise(seed).uniform(stream, position, 4).tolist())
        for seed in (-1, 0, 1, 2, 12, 2**70)
        for stream in ("target", "draft", "accept", "residual")
        for position in (0, 1, 2, 3, 23, 2**40)
    }
    assert len(set(draws.values())) == len(draws)
    for (seed, stream, position), values in draws.items():
        assert tuple(Noise(seed).uniform(stream, position, 4).tolist()) == values
    rows = Noise(1).gumbels("target", 5, 3, 7)
    assert mx.array_equal(rows[2], Noise(1).gumbel("target", 7, 7))


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=[pytest.mark.slow, needs_fusing])])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_several_positions_drawn_at_once_have_the_noise_each_has_alone(device_says, fused, width):
    """Bit for bit: a plain round draws one position, the judge of a draft those that the draft did not need."""
    device_says(fuses=fused)
    together = np.array(Noise(3).gumbels("target", 10, 6, width))
    alone = [np.array(Noise(3).gumbel("target", 10 + i, width)) for i in range(6)]
    np.testing.assert_array_equal(together, np.stack(alone))


def kolmogorov(samples, cdf):
    """Largest distance between the samples' empirical law and `cdf`."""
    samples = np.sort(samples)
    exact = cdf(samples)
    steps = np.arange(len(samples) + 1) / len(samples)
    return max(np.abs(exact - steps[1:]).max(), np.abs(exact - steps[:-1]).max())


@pytest.mark.parametrize("across", [False, True])
def test_noise_has_its_law_within_a_position_and_across_positions(across):
    """N = 200 000 in one position, 2 000 over positions; bound sqrt(ln(2 / 1e-6) / 2N) by Dvoretzky-Kiefer-Wolfowitz
    (Massart 1990), false alarm < 1e-6 each. Control: the same draws, scaled by 0.9, are refused.
    """
    noise, n = Noise(11), 2000 if across else 200_000

    def drawn(make):
        rows = [make("accept", i, 1) for i in range(n)] if across else [make("draft", 0, n)]
        return np.array(mx.concatenate(rows), np.float64)

    bound = math.sqrt(math.log(2e6) / (2 * n))
    uniform = drawn(noise.uniform)
    assert kolmogorov(uniform, lambda v: v) < bound
    assert kolmogorov(drawn(noise.gumbel), lambda v: np.exp(-np.exp(-v))) < bound
    assert kolmogorov(0.9 * uniform, lambda v: v) > bound


def test_each_further_answer_of_a_seed_has_a_seed_of_its_own():
    seeds = [attempt_seed(7, attempt) for attempt in range(6)]
    noise = {tuple(Noise(one).uniform("target", 0, 4).tolist()) for one in seeds}
    assert seeds[0] == 7 and len(set(seeds)) == 6 == len(noise)


# Log-probabilities, through the real loop.


NETWORK, OTHER = tiny_network(seed=1), tiny_network(seed=1, noise=0.05)
PROMPT = [5, 6, 7]


def rounds(k, temperature, logprobs, name="model"):
    target, draft = CachedModel(NETWORK, "t"), CachedModel(OTHER, "d")
    sampler = Sampler(Sampling(temperature, repetition_penalty=1.2), 3, PROMPT, target.vocab_size)
    rule = make_rule("coupled", sampler)
    drafters = drafters_of(name, target, draft, rule, k)
    context = list(PROMPT)
    found = decode(target, drafters, rule, context, 30, frozenset(), time.perf_counter, logprobs=logprobs)
    return list(found), context


@pytest.mark.parametrize(("temperature", "k"), [(0.0, 4), (0.8, 1), (0.8, 0)])
def test_each_emitted_token_has_the_targets_own_log_probability(k, temperature):
    """Penalties and temperature change what is drawn, not what the target thinks of it."""
    found, context = rounds(k, temperature, 3)
    logits = np.array(NETWORK(mx.array([context]))[0], np.float64)
    log_p = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    at = len(PROMPT) - 1
    for round in found:
        assert [score.token for score in round.logprobs] == list(round.emitted)
        for score in round.logprobs:
            assert score.logprob == pytest.approx(log_p[at, score.token], abs=2e-4)
            best = np.sort(log_p[at])[::-1][:3]
            np.testing.assert_allclose([value for _, value in score.top], best, atol=2e-4)
            assert score.top[0][0] == int(np.argmax(log_p[at]))
            at += 1
    assert at == len(context) - 1
    assert k == 0 or (any(round.rejected is not None for round in found) and any(round.accepted for round in found))
