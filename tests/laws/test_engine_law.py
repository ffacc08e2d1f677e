"""Law: answers of the whole engine (loop, caches, drafter, rule, warps, noise) follow the target's own law.

A case is N answers to one prompt with seeds 0 … N - 1, each of K + 2 tokens: the first is drawn plainly, the others in
rounds of up to K. `exact_law` says what is compared, and with which odds to fail by chance: 1e-9 for each of at most
12 chi-squares a case, so less than 1e-6 for all cases of this file, `full` ones included. The seeds are fixed: a case
that passes will always pass.

What this cannot see is a law that is off by a hundredth, such as the residual of token under block; the unit tests of
sampling enumerate those.
"""

import time
from functools import cache
from itertools import product

import mlx.core as mx
import numpy as np
import pytest

from fakes.broken_rules import (
    RepeatedNoise,
    SharedNoise,
    ShrinkingKey,
    StuckNoise,
    once_drafted,
    raw_residual,
    swapped,
)
from fakes.drafting import translated
from fakes.gemma import agreeing_assistant, small_gemma
from fakes.heads import agreeing_head, cached_head, trained_medusa
from fakes.models import tiny_network
from fakes.scored import ScoredModel
from laws.exact_law import CASES, PROMPT, SMALL, K, answers, assert_follows, assert_likely
from specdec_cli.engine.decode import decode
from specdec_cli.engine.draft import NO_TOKENS
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


# Under a constraint they follow the target's distribution, masked at every step before every warp. The constraint is a
# table over 16 tokens that shares nothing with the one of the product: what may follow depends on the sum of the
# answer's tokens so far.


V, STATES = SMALL["vocab_size"], 5
ALLOWED = np.random.default_rng(4).random((STATES, V)) < 0.6
ALLOWED[3] = np.arange(V) == 7  # forced


class Table:
    """A constraint of the engine."""

    def __init__(self):
        self.state = 0

    def forced(self):
        return self._walk([7] * 4)[: 1 if self.state == 3 else 0]

    def legal(self, draft):
        return len(self._walk(draft))

    def masks(self, draft):
        rows, state = [], self.state
        for token in [*draft, None]:
            bits = np.packbits(ALLOWED[state or 0], bitorder="little")
            rows.append(int.from_bytes(bits.tobytes(), "little") if state is not None else -1)
            good = state is not None and token is not None and ALLOWED[state][token]
            state = (state + token) % STATES if good else None
        return np.array(rows, np.int64).astype(np.int32)[:, None]

    def advance(self, emitted):
        assert len(self._walk(emitted)) == len(emitted), "not in the grammar"
        self.state = (self.state + sum(emitted)) % STATES

    def _walk(self, tokens):
        state, good = self.state, []
        for token in tokens:
            if not ALLOWED[state][token]:
                break
            good.append(token)
            state = (state + token) % STATES
        return good


class Masked:
    """A network whose logits are masked by what came after the prompt."""

    def __init__(self, network):
        self._network = network

    def __call__(self, contexts):
        logits = np.array(self._network(contexts), np.float64)
        states = np.array(contexts)[:, len(PROMPT) :].sum(1) % STATES
        logits[:, -1] = np.where(ALLOWED[states], logits[:, -1], -np.inf)
        return mx.array(logits)


class Stale(Table):
    """Only the first row of a pass is masked: what vLLM's rows behind a draft once were (#54437)."""

    def masks(self, draft):
        rows = super().masks(draft)
        return np.where(np.arange(len(rows))[:, None] > 0, -1, rows)


class WrongLaw(Sampler):
    """The mask after the warps, not before: top-p then cuts by the law of all tokens."""

    def for_target(self, logits, pending, uncommitted=NO_TOKENS):
        constraint, self._constraint = self._constraint, None
        scores = super().for_target(logits, pending, uncommitted)
        self._constraint = constraint
        tokens = [t for part in (uncommitted, pending) if part.size for t in part.tolist()]
        rows = constraint.masks(tokens)[-len(scores) :].view(np.uint8)
        bits = np.unpackbits(rows, axis=1, bitorder="little")[:, :V].astype(bool)
        masked = mx.where(mx.array(bits), scores, -mx.inf)
        return masked - mx.logsumexp(masked, -1, keepdims=True)


class Ahead(Table):
    """One token ahead of the answer."""

    def masks(self, draft):
        rows = super().masks([*draft, *([7] if not draft else [])])
        return rows[[*range(1, len(rows)), len(rows) - 1]][: len(draft) + 1]

    def advance(self, emitted):
        self.state = (self.state + sum(emitted)) % STATES


def pair():
    return tiny_network(SMALL, seed=1), tiny_network(SMALL, seed=1, noise=0.1)


def texts_of(rule, sampling, sampler=Sampler, constraint=Table, n=N):
    """[n, K + 2]: an answer for each noise, under a constraint of its own."""
    target, draft = (CachedModel(network, "model") for network in pair())

    def begin(noise, context):
        table = constraint()
        made = make_rule(rule, sampler(sampling, noise, PROMPT, V, table))
        return Drafters(ModelDrafter(draft, V, made), K, constraint=table), made

    return answers(target, begin, n)[0]


def assert_masked_law(texts, sampling):
    assert_follows(tuple(map(Masked, pair())), PROMPT, texts, sampling)


@pytest.mark.slow
def test_a_few_answers_follow_the_masked_target():
    """N = 120 answers of 4 tokens, K = 2."""
    assert_masked_law(texts_of("block", Sampling(1.0), n=120), Sampling(1.0))


@pytest.mark.full
@pytest.mark.parametrize(("rule", "sampling"), [*CASES, ("token", Sampling(1.5, top_p=0.7))])
def test_answers_follow_the_masked_target(rule, sampling):
    """N = 1000 answers of 4 tokens, K = 2."""
    assert_masked_law(texts_of(rule, sampling), sampling)


@pytest.mark.full
@pytest.mark.parametrize(
    ("wrong", "sampling"),
    [
        ({"sampler": WrongLaw}, Sampling(1.5, top_p=0.7)),
        ({"constraint": Ahead}, Sampling(1.0)),
        ({"constraint": Stale}, Sampling(1.0)),
    ],
    ids=["the mask after the warps", "a matcher one token ahead", "rows without a mask"],
)
def test_control_a_known_mistake_is_noticed(wrong, sampling):
    """Negative controls: the same N = 1000 answers to the same test."""
    with pytest.raises(AssertionError, match=r"odds|probability 0|not in the grammar"):
        assert_masked_law(texts_of("token", sampling, **wrong), sampling)


# Whole answers, from their first token to their shortened last rounds. Five tokens at K 4: the rounds of an answer may
# draft 3, 2, 1 and 0 tokens, so noise that is numbered by K, or by where a round may end, is used twice. The target and
# the draft are tables, so the law is a product of entries.


class MarkovModel(ScoredModel):
    """The next token depends on the last one alone. `table` [V, V]: row x holds the probabilities of what follows x."""

    def __init__(self, table) -> None:
        with np.errstate(divide="ignore"):
            self._scores = mx.array(np.log(table).astype(np.float32))
        self.vocab_size = len(table)

    def rows(self, tokens):
        return self._scores[tokens]


# Half of the drafts are rejected, and after each rejection the target still has two tokens to choose from.
TARGET = np.array([[0.44, 0.52, 0.04], [0.52, 0.44, 0.04], [0.48, 0.48, 0.04]])
DRAFT = np.array([[0.30, 0.05, 0.65], [0.05, 0.30, 0.65], [0.30, 0.05, 0.65]])
LENGTH, MOST_K, ANSWERS, START = 5, 4, 200, 2
LEAST_EXPECTED = 3
PARTS = {"token": (plan_token, draw_token), "block": (plan_block, draw_block)}


def assert_whole_answers_follow(rule_for):
    """N = 200 answers: a cell for each of the 32 that are expected 3 times, and one for the others."""
    target, draft, width = MarkovModel(TARGET), MarkovModel(DRAFT), len(TARGET)
    counts, lengths = np.zeros((width,) * LENGTH), set()
    for seed in range(ANSWERS):
        context, rule = [START], rule_for(Sampler(Sampling(1.0), seed, [START], width))
        drafter = ModelDrafter(draft, width, rule)
        rounds = list(decode(target, Drafters(drafter, MOST_K), rule, context, LENGTH, frozenset(), time.perf_counter))
        lengths |= {len(round.draft) for round in rounds}
        counts[tuple(context[1:])] += 1
    assert lengths == {0, 1, 2, 3}
    steps = (zip((START, *answer), answer, strict=False) for answer in product(range(width), repeat=LENGTH))
    expected = ANSWERS * np.array([np.prod([TARGET[step] for step in answer]) for answer in steps])
    likely, counts = expected >= LEAST_EXPECTED, counts.ravel()
    others = [ANSWERS - counts[likely].sum()], [ANSWERS - expected[likely].sum()]
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
