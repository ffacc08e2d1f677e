"""Law: under `coupled` the text is a function of the seed and the target alone, whatever drafts and however much.

The other side is mlx-lm's own `generate_step`, with bias and penalties written again here, from its documentation's
point of view: a processor sees all tokens so far. Only the noise is shared.
"""

import time
from collections import Counter
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step

from fakes.drafting import drafters_of
from fakes.models import TINY, tiny_network
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import Draft
from specdec_cli.engine.drafters.base import Drafter
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

CONFIG = TINY | {"vocab_size": 16, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32}
PROMPT, TOKENS = [5, 6, 7, 5, 6], 40
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}
PENALISED = Sampling(0.8, **PENALTIES, logit_bias=((3, 2.0), (9, -4.0)))
DRAFTING = ["model", "hostile", "ngram"]
SAMPLINGS = {"plain": Sampling(0.8), "penalised": PENALISED}


def network(**how):
    """Random, and sure enough of itself to say again what it said: else n-grams would never be accepted."""
    return tiny_network(CONFIG, gain=0.6, **how)


@cache
def models():
    """The target, a draft that is often right, and one that has nothing to do with it."""
    return {
        "target": CachedModel(network(seed=1), "target"),
        "model": CachedModel(network(seed=1, noise=0.06), "model"),
        "hostile": CachedModel(network(seed=99), "hostile"),
    }


def run(drafter, k, sampling, seed=0, sampler=Sampler):
    """The rounds of an answer; `drafter` is one, or its name."""
    target = models()["target"]
    rule = make_rule("coupled", sampler(sampling, seed, PROMPT, target.vocab_size))
    if isinstance(drafter, str):
        name = "model" if drafter == "hostile" else drafter
        drafters = drafters_of(name, target, models().get(drafter, models()["model"]), rule, k)
    else:
        drafters = Drafters(drafter, k)
    context = list(PROMPT)
    target.reuse(context)
    return list(decode(target, drafters, rule, context, TOKENS, frozenset(), time.perf_counter))


def text(rounds):
    return [token for round in rounds for token in round.emitted]


def penalise(sampling):
    """A logits processor of mlx-lm: the whole of `sampling` but its temperature, in numpy."""

    def processor(tokens, logits):
        tokens, row = tokens.tolist(), np.array(logits[0], np.float32)
        for token, addend in sampling.logit_bias:
            row[token] += np.float32(addend)
        for token in set(tokens):
            row[token] = (row[token] / np.float32(1.2)) if row[token] > 0 else row[token] * np.float32(1.2)
        for token, times in Counter(tokens[len(PROMPT) :]).items():
            row[token] -= np.float32(0.5) + times * np.float32(0.3)
        return mx.array(row)[None]

    return [processor] if sampling.counts_tokens else []


@cache
def by_mlx_lm(name, seed=None):
    """The text by mlx-lm: greedy without a seed, else with the noise of each absolute position."""
    noise, position = Noise(seed), len(PROMPT)

    def draw(log_probabilities):
        nonlocal position
        scores = log_probabilities / 0.8 + noise.gumbel("target", position, CONFIG["vocab_size"])
        position += 1
        return mx.argmax(scores, axis=-1)

    steps = generate_step(
        mx.array(PROMPT),
        network(seed=1),
        max_tokens=TOKENS,
        sampler=None if seed is None else draw,
        logits_processors=penalise(SAMPLINGS[name]),
    )
    return [int(token) for token, _ in steps]


@pytest.mark.parametrize("drafter", DRAFTING)
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.full)], ids=["few", "many"])
def test_the_text_is_mlx_lms_own_for_a_few_seeds(drafter, seeds):
    for seed in seeds:
        assert text(run(drafter, (4, 1, 8, 2)[seed % 4], PENALISED, seed)) == by_mlx_lm("penalised", seed)


@pytest.mark.parametrize(("drafter", "k"), list(zip(DRAFTING, (4, 1, 0), strict=True)))
def test_greedy_with_penalties_is_mlx_lms_own(drafter, k):
    cold = Sampling(0.0, **PENALTIES, logit_bias=PENALISED.logit_bias)
    assert text(run(drafter, k, cold)) == by_mlx_lm("penalised")
    assert by_mlx_lm("penalised") != by_mlx_lm("plain")


class Clairvoyant(Drafter):
    """Proposes a known text, `right` tokens of it at a time, then a wrong one."""

    name = "clairvoyant"

    def __init__(self, answer, right):
        self._answer, self._right = answer, right

    def propose(self, context, k):
        yield from ()
        coming = self._answer[len(context) - len(PROMPT) :][:k]
        wrong = [(t + 1) % CONFIG["vocab_size"] for t in coming[self._right :]]
        return Draft(mx.array(coming[: self._right] + wrong, dtype=mx.int32), drafter=self.name)


CASES = [(temperature, right) for temperature in (0.0, 0.8) for right in range(5)]


def with_penalties(temperature):
    """The settings, and the text by mlx-lm, that of seed 3."""
    sampling = Sampling(temperature, **PENALTIES, logit_bias=PENALISED.logit_bias)
    return sampling, by_mlx_lm("penalised", 3 if temperature else None)


@pytest.mark.parametrize(("temperature", "right"), CASES)
def test_penalties_count_each_token_once_whatever_became_of_the_draft(temperature, right):
    """With 0 … 4 of 4 draft tokens accepted: each is counted in flight, only accepted ones once emitted."""
    sampling, expected = with_penalties(temperature)
    rounds = run(Clairvoyant(expected, right), 4, sampling, 3)
    assert text(rounds) == expected
    assert all(round.accepted == min(right, len(round.draft)) for round in rounds)
