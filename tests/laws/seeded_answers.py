"""Many short answers of the whole engine to one prompt, a seed each, from one target's caches."""

from __future__ import annotations

import time

import numpy as np

from fakes.models import TINY
from specdec_cli.engine.decode import decode
from specdec_cli.engine.sampling.warps import Sampling

PROMPT, K = [1, 2, 3], 2
SMALL = TINY | {
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}
# (rule, warps) under which answers from drafts of any kind follow the target.
CASES = (
    ("token", Sampling(1.0)),
    ("block", Sampling(1.0)),
    ("coupled", Sampling(0.6)),
    ("match", Sampling(1.0)),
    ("block", Sampling(0.6, top_p=0.9)),
)


def answers(target, begin, n, prompt=PROMPT, k=K):
    """(tokens [n, k + 2], all rounds). `begin(seed, context)` gives drafters and rule of an answer."""
    texts, rounds = [], []
    for seed in range(n):
        context = list(prompt)
        target.reuse(context)
        drafters, rule = begin(seed, context)
        made = list(decode(target, drafters, rule, context, k + 2, frozenset(), time.perf_counter))
        assert sum(len(round.emitted) for round in made) == k + 2
        texts.append(context[len(prompt) :])
        rounds += made
    return np.array(texts), rounds
