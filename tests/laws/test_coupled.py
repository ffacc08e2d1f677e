"""Law: penalties and bias count each token once, and the words are mlx-lm's own, whatever became of a draft.

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
PROMPT, TOKENS, SEED = [5, 6, 7, 5, 6], 40, 3
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}
BIAS = ((3, 2.0), (9, -4.0))


@cache
def network():
    """Random, and sure enough of itself to say again what it said."""
    return tiny_network(CONFIG, gain=0.6, seed=1)


def penalise(tokens, logits):
    """A logits processor of mlx-lm: bias and penalties, in numpy."""
    tokens, row = tokens.tolist(), np.array(logits[0], np.float32)
    for token, addend in BIAS:
        row[token] += np.float32(addend)
    for token in set(tokens):
        row[token] = (row[token] / np.float32(1.2)) if row[token] > 0 else row[token] * np.float32(1.2)
    for token, times in Counter(tokens[len(PROMPT) :]).items():
        row[token] -= np.float32(0.5) + times * np.float32(0.3)
    return mx.array(row)[None]


@cache
def by_mlx_lm(temperature, penalised=True):
    """The text by mlx-lm: greedy at 0, else with the noise of each absolute position."""
    noise, position = Noise(SEED), len(PROMPT)

    def draw(log_probabilities):
        nonlocal position
        scores = log_probabilities / temperature + noise.gumbel("target", position, CONFIG["vocab_size"])
        position += 1
        return mx.argmax(scores, axis=-1)

    processors = [penalise] if penalised else []
    how = {"max_tokens": TOKENS, "sampler": draw if temperature else None, "logits_processors": processors}
    return [int(token) for token, _ in generate_step(mx.array(PROMPT), network(), **how)]


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


@pytest.mark.parametrize("right", range(5))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_penalties_count_each_token_once_whatever_became_of_the_draft(temperature, right):
    """With 0 … 4 of 4 draft tokens accepted: each is counted in flight, only accepted ones once emitted."""
    target, context, expected = CachedModel(network(), "target"), list(PROMPT), by_mlx_lm(temperature)
    sampling = Sampling(temperature, **PENALTIES, logit_bias=BIAS)
    rule = make_rule("coupled", Sampler(sampling, SEED, PROMPT, target.vocab_size))
    drafters = Drafters(Clairvoyant(expected, right), 4)
    rounds = list(decode(target, drafters, rule, context, TOKENS, frozenset(), time.perf_counter))
    assert context[len(PROMPT) :] == expected != by_mlx_lm(temperature, penalised=False)
    assert all(round.accepted == min(right, len(round.draft)) for round in rounds)
