"""Log-probabilities against a computation of their own, through the real loop."""

import time

import mlx.core as mx
import numpy as np
import pytest

from fakes.drafting import drafters_of
from fakes.models import tiny_network
from specdec_cli.engine.decode import decode
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

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
