"""Law: whole answers, from their first token to their shortened last rounds, follow the target's own law.

Five tokens at K 4: the rounds of an answer may draft 3, 2, 1 and 0 tokens, so noise that is numbered by K, or by where
a round may end, is used twice. The target and the draft are tables, so the law is a product of entries.
"""

import time
from itertools import product

import numpy as np
import pytest

from fakes.broken_rules import ShrinkingKey
from fakes.scored import MarkovModel
from laws.exact_law import assert_likely
from specdec_cli.engine.decode import decode
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.rejection import draw_block, draw_token, plan_block, plan_token
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

# Half of the drafts are rejected, and after each rejection the target still has two tokens to choose from.
TARGET = np.array([[0.44, 0.52, 0.04], [0.52, 0.44, 0.04], [0.48, 0.48, 0.04]])
DRAFT = np.array([[0.30, 0.05, 0.65], [0.05, 0.30, 0.65], [0.30, 0.05, 0.65]])
LENGTH, K, N, START = 5, 4, 200, 2
LEAST_EXPECTED = 3
PARTS = {"token": (plan_token, draw_token), "block": (plan_block, draw_block)}


def assert_whole_answers_follow(rule_for):
    """N = 200 answers: a cell for each of the 32 that are expected 3 times, and one for the others."""
    target, draft, width = MarkovModel(TARGET), MarkovModel(DRAFT), len(TARGET)
    counts, lengths = np.zeros((width,) * LENGTH), set()
    for seed in range(N):
        context, rule = [START], rule_for(Sampler(Sampling(1.0), seed, [START], width))
        drafter = ModelDrafter(draft, width, rule)
        rounds = list(decode(target, Drafters(drafter, K), rule, context, LENGTH, frozenset(), time.perf_counter))
        lengths |= {len(round.draft) for round in rounds}
        counts[tuple(context[1:])] += 1
    assert lengths == {0, 1, 2, 3}
    steps = (zip((START, *answer), answer, strict=False) for answer in product(range(width), repeat=LENGTH))
    expected = N * np.array([np.prod([TARGET[step] for step in answer]) for answer in steps])
    likely, counts = expected >= LEAST_EXPECTED, counts.ravel()
    others = [N - counts[likely].sum()], [N - expected[likely].sum()]
    assert_likely(np.append(counts[likely], others[0]), np.append(expected[likely], others[1]), "whole answers")


@pytest.mark.parametrize("rule", PARTS)
def test_whole_answers_of_five_tokens_follow_the_target(rule):
    """A chi-square over 33 cells, odds to fail by chance 1e-9 (`exact_law.ODDS`); seeds are fixed."""
    assert_whole_answers_follow(lambda sampler: make_rule(rule, sampler))


@pytest.mark.parametrize("rule", PARTS)
def test_noise_numbered_by_the_end_of_a_round_is_noticed(rule):
    """Negative control of the test above: two rounds of an answer share their noise."""
    with pytest.raises(AssertionError, match="whole answers"):
        assert_whole_answers_follow(lambda sampler: ShrinkingKey(rule, *PARTS[rule], sampler))
