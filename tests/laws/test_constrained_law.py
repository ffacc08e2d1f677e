"""Law: answers under a constraint follow the target's distribution, masked at every step before every warp.

As `test_engine_law`, with the same tests and odds. The constraint is a table over 16 tokens that shares nothing with
the one of the product: what may follow depends on the sum of the answer's tokens so far.
"""

import mlx.core as mx
import numpy as np
import pytest

from fakes.models import tiny_network
from laws.exact_law import assert_follows
from laws.seeded_answers import CASES, PROMPT, SMALL, K, answers
from specdec_cli.engine.draft import NO_TOKENS
from specdec_cli.engine.drafters.drafters import Drafters
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

pytestmark = pytest.mark.timeout(1800)
N, V, STATES = 1000, SMALL["vocab_size"], 5
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
