"""Law: answers of the whole engine (loop, caches, drafter, rule, warps, noise) follow the target's own law.

A case is N answers to one prompt with seeds 0 … N - 1, each of K + 2 tokens: the first is drawn plainly, the others in
rounds of up to K. `exact_law` says what is compared, and with which odds to fail by chance: 1e-9 for each of at most
12 chi-squares a case, so less than 1e-6 for all cases of this file, `full` ones included. The seeds are fixed: a case
that passes will always pass.

What this cannot see is a law that is off by a hundredth, such as the residual of token under block; the unit tests of
sampling enumerate those.
"""

from functools import cache

import pytest

from fakes.broken_rules import (
    RepeatedNoise,
    SharedNoise,
    StuckNoise,
    once_drafted,
    raw_residual,
    swapped,
)
from fakes.models import tiny_network
from laws.exact_law import assert_follows
from laws.seeded_answers import CASES, PROMPT, SMALL, K, answers
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.load import load_network
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import Rejection, make_rule
from specdec_cli.engine.sampling.rejection import draw_block, draw_token, plan_block, plan_token
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling
from specdec_cli.hub import locate
from specdec_cli.models.checkpoint import read_checkpoint

# Thousands of answers take minutes on a slow or busy machine.
pytestmark = pytest.mark.timeout(1800)
N = 1000


@cache
def random_pair():
    """Target and draft, 16 tokens: total variation 0.6 apart at T = 1, so about half of the drafts are rejected."""
    return tiny_network(SMALL, seed=1), tiny_network(SMALL, seed=1, noise=0.1)


@cache
def demo_pair():
    return tuple(load_network(read_checkpoint(locate(f"specdec:demo/{n}"), n)) for n in ("target", "draft"))


def texts_of(networks, rule_for, sampling, n, prompt=PROMPT, k=K):
    """[n, k + 2]: an answer for each seed, from one pair of caches."""
    target, draft = (CachedModel(network, "model") for network in networks)

    def begin(seed, context):
        rule = rule_for(Sampler(sampling, seed, prompt, target.vocab_size))
        return Drafters(ModelDrafter(draft, target.vocab_size, rule), k), rule

    return answers(target, begin, n, prompt, k)[0]


def assert_engine_follows(rule_for, sampling, n=N):
    assert_follows(random_pair(), PROMPT, texts_of(random_pair(), rule_for, sampling, n), sampling)


def named(rule):
    return lambda sampler: make_rule(rule, sampler)


@pytest.mark.full
@pytest.mark.parametrize(("rule", "sampling"), CASES)
def test_answers_of_a_random_pair_follow_the_target(rule, sampling):
    """N = 1000 answers of 4 tokens, K = 2."""
    assert_engine_follows(named(rule), sampling)


def test_a_few_answers_of_a_random_pair_follow_the_target():
    """N = 120 answers of 4 tokens, K = 2."""
    assert_engine_follows(named("block"), Sampling(1.0), 120)


def rejection(kind, rule, plan=None):
    own, draw_verdict = {"token": (plan_token, draw_token), "block": (plan_block, draw_block)}[rule]
    return lambda sampler: kind(rule, once_drafted(plan, own) if plan else own, draw_verdict, sampler)


PLAIN, CUT, HOT = Sampling(1.0), Sampling(0.6, top_p=0.9), Sampling(1.5)
BROKEN = {
    "token, residual p": (rejection(Rejection, "token", raw_residual(plan_token)), PLAIN),
    "block, swapped ratio": (rejection(Rejection, "block", swapped(plan_block)), PLAIN),
    "token, shared noise": (rejection(SharedNoise, "token"), PLAIN),
    "block, repeated noise": (rejection(RepeatedNoise, "block"), PLAIN),
    "coupled, stuck noise": (StuckNoise, PLAIN),
}


@pytest.mark.full
@pytest.mark.parametrize("name", BROKEN)
def test_a_known_mistake_is_noticed_in_the_engine_s_answers(name):
    """Negative controls: the same N = 1000 answers to the same test as above."""
    with pytest.raises(AssertionError, match="odds"):
        assert_engine_follows(*BROKEN[name])


def assert_engine_follows_demo(rule_for, sampling, n):
    """The first three tokens after "import os\\nimport ", where both models are in doubt and 0.5 apart."""
    prompt = [517, 574, 201, 517, 223]
    texts = texts_of(demo_pair(), rule_for, sampling, n, prompt)[:, :3]
    assert_follows(demo_pair(), prompt, texts, sampling, floor=0.02)


@pytest.mark.full
def test_answers_of_the_demo_pair_follow_the_target():
    """N = 250 answers of 4 tokens, K = 2."""
    assert_engine_follows_demo(named("block"), Sampling(1.0, top_p=0.9), 250)
