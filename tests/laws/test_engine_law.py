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
from fakes.gemma import agreeing_assistant, small_gemma
from fakes.heads import agreeing_head, cached_head, trained_medusa
from fakes.models import tiny_network
from fakes.translated import translated
from laws.exact_law import assert_follows
from laws.seeded_answers import CASES, PROMPT, SMALL, K, answers
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import HeadDrafter, ModelDrafter, TranslatedDrafter
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
HEADS = ("mtp", "medusa", "assistant", "assistant of clusters")
DRAFTS = ("model", "translated", *HEADS)


def drafting(kind):
    """(a target of 16 tokens, a network a little off it, a rule -> a drafter of that kind).

    Target and draft are a total variation of 0.6 apart at T = 1, so about half of the drafts are rejected. Of a draft
    that says only some words, or of a head, the network off the target only orders what is compared.
    """
    if kind.startswith("assistant"):
        target = CachedModel(small_gemma(), "small")
        head = agreeing_assistant(target, 1.0, **({"clusters": 4, "best": 2} if "clusters" in kind else {}))
        return target, small_gemma(noise=0.1), lambda rule: HeadDrafter(head, target, rule)
    target, other = (CachedModel(tiny_network(SMALL, seed=1, noise=noise), "small") for noise in (0.0, 0.1))
    width = target.vocab_size
    if kind == "model":
        return target, other.network.module, lambda rule: ModelDrafter(other, width, rule)
    if kind == "translated":
        draft = translated(other.network.module, mute=(5, 9))
        return target, other.network.module, lambda rule: TranslatedDrafter(draft, width, rule)
    made = trained_medusa(target, K) if kind == "medusa" else agreeing_head(target)
    cached = cached_head(target, made, recent=1 if kind == "medusa" else None)
    return target, other.network.module, lambda rule: HeadDrafter(cached, target, rule)


def assert_engine_follows(kind, rule_for, sampling, n=N):
    """Drafts are accepted, rejected, and accepted in part."""
    target, other, drafter_for = drafting(kind)

    def begin(seed, context):
        rule = rule_for(Sampler(sampling, seed, PROMPT, target.vocab_size))
        drafters = Drafters(drafter_for(rule), K)
        target.commit(context, min(target.length, drafters.keeps(context)))
        return drafters, rule

    texts, rounds = answers(target, begin, n)
    assert {(len(round.draft), round.accepted) for round in rounds} >= {(K, 0), (K, 1), (K, K)}
    assert_follows((target.network.module, other), PROMPT, texts, sampling)


def named(rule):
    return lambda sampler: make_rule(rule, sampler)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind not in HEADS else pytest.mark.slow) for kind in DRAFTS]
)
def test_a_few_answers_follow_the_target(kind):
    """N = 120 answers of 4 tokens, K = 2."""
    assert_engine_follows(kind, named("block"), Sampling(1.0), 120)


@pytest.mark.full
@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize(("rule", "sampling"), CASES)
def test_answers_follow_the_target(rule, sampling, kind):
    """N = 1000 answers of 4 tokens, K = 2."""
    assert_engine_follows(kind, named(rule), sampling)


def rejection(kind, rule, plan=None):
    own, draw_verdict = {"token": (plan_token, draw_token), "block": (plan_block, draw_block)}[rule]
    return lambda sampler: kind(rule, once_drafted(plan, own) if plan else own, draw_verdict, sampler)


BROKEN = {
    "token, residual p": rejection(Rejection, "token", raw_residual(plan_token)),
    "block, swapped ratio": rejection(Rejection, "block", swapped(plan_block)),
    "token, shared noise": rejection(SharedNoise, "token"),
    "block, repeated noise": rejection(RepeatedNoise, "block"),
    "coupled, stuck noise": StuckNoise,
}
MISTAKES = [
    *(("model", name) for name in BROKEN),
    ("translated", "token, residual p"),
    *((kind, name) for kind in HEADS for name in ("token, shared noise", "block, swapped ratio")),
]


@pytest.mark.full
@pytest.mark.parametrize(("kind", "name"), MISTAKES)
def test_a_known_mistake_is_noticed_in_the_engine_s_answers(kind, name):
    """Negative controls: the same N = 1000 answers to the same test as above."""
    with pytest.raises(AssertionError, match="odds"):
        assert_engine_follows(kind, BROKEN[name], Sampling(1.0))


@cache
def demo_pair():
    return tuple(load_network(read_checkpoint(locate(f"specdec:demo/{n}"), n)) for n in ("target", "draft"))


@pytest.mark.full
def test_answers_of_the_demo_pair_follow_the_target():
    """N = 250 answers of 4 tokens, K = 2: the first three after "import os\\nimport ", where both are in doubt."""
    prompt, sampling = [517, 574, 201, 517, 223], Sampling(1.0, top_p=0.9)
    target, draft = (CachedModel(network, "model") for network in demo_pair())

    def begin(seed, context):
        rule = named("block")(Sampler(sampling, seed, prompt, target.vocab_size))
        return Drafters(ModelDrafter(draft, target.vocab_size, rule), K), rule

    assert_follows(demo_pair(), prompt, answers(target, begin, 250, prompt)[0][:, :3], sampling, floor=0.02)
