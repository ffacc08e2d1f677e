"""The draft model against its own greedy continuation, token by token without a cache."""

import mlx.core as mx
import numpy as np
import pytest

from fakes.models import TINY, tiny_network
from specdec_cli.core.request import MAX_UNREAD
from specdec_cli.engine.drafters.base import DraftStep, finished
from specdec_cli.engine.drafters.stepwise import ModelDrafter
from specdec_cli.engine.model import CachedModel
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

NETWORK = tiny_network(seed=1)
PROMPT = [5, 9, 200, 31]
V = TINY["vocab_size"]


def continued(ids, k, network=NETWORK, vocab_size=V):
    ids, given = list(ids), len(ids)
    for _ in range(k):
        known = [min(token, network.args.vocab_size - 1) for token in ids]
        logits = network(mx.array([known]))[0, -1]
        ids.append(int(mx.argmax(logits[:vocab_size])))
    return ids[given:]


def drafter(network=NETWORK, vocab_size=V, rule=None):
    return ModelDrafter(CachedModel(network, "draft"), vocab_size, rule or greedy(vocab_size))


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_greedy_draft_is_how_the_model_continues(k):
    draft = finished(drafter().propose(PROMPT, k))
    assert (draft.tokens.tolist(), draft.log_q, draft.drafter) == (continued(PROMPT, k), None, "model")


def test_it_reads_in_steps_at_first_and_where_too_much_is_unread():
    """The steps before the first token is queued: the place it reads from, and that after each chunk."""

    def reads(context):
        *reading, step, drafted = found.propose(context, 1)
        assert isinstance(step, DraftStep) and drafted is None
        return reading

    found = ModelDrafter(CachedModel(NETWORK, "draft"), V, greedy(V))
    assert reads(PROMPT) == [0, len(PROMPT) - 1]
    assert reads(PROMPT) == []
    few = [*PROMPT, *[3] * (MAX_UNREAD - 1)]
    assert reads(few) == []
    many = [*few, *[3] * (MAX_UNREAD + 1)]
    assert reads(many) == [len(few), len(many) - 1]


@pytest.mark.parametrize("width", [200, 300])
def test_a_draft_of_another_width_draws_only_what_the_target_has(width):
    """Target of 230 ids: a narrower draft is padded, a wider one cut; its q lies on the target's ids alone."""
    vocab_size = 230
    assert max(PROMPT) == 200  # the narrower draft has no embedding for it
    network = tiny_network(TINY | {"vocab_size": width}, seed=5)
    assert finished(drafter(network, vocab_size).propose(PROMPT, 3)).tokens.tolist() == continued(
        PROMPT, 3, network, vocab_size
    )
    rule = make_rule("block", Sampler(Sampling(1.0), 3, PROMPT, vocab_size))
    draft = finished(drafter(network, vocab_size, rule).propose(PROMPT, 3))
    q = np.exp(np.array(draft.log_q))
    assert q.shape == (3, vocab_size)
    np.testing.assert_allclose(q.sum(-1), 1, atol=1e-4)
    assert q[:, width:].sum() == 0


class First:
    """A constraint under which `token` comes first, and then anything."""

    def __init__(self, token):
        self._row = np.packbits(np.arange(256) == token, bitorder="little").view(np.int32)

    def masks(self, draft):
        return np.stack([self._row, *[np.full_like(self._row, -1)] * len(draft)])


def test_a_drafted_id_that_the_draft_has_no_row_for_is_fed_as_its_last_one():
    """Under a constraint it may be the only one; mlx read its embedding past the end of them."""
    network = tiny_network(TINY | {"vocab_size": 200}, seed=5)
    for token in (199, 210, 229):
        rule = make_rule("greedy", Sampler(Sampling(0.0), 3, PROMPT, 230, First(token)))
        drafted = finished(drafter(network, 230, rule).propose(PROMPT, 4)).tokens.tolist()
        assert drafted == [token, *continued([*PROMPT, token], 3, network, 230)]


def test_q_is_the_law_that_each_token_was_drawn_from():
    rule = make_rule("token", Sampler(Sampling(0.7), 3, PROMPT, V))
    draft = finished(drafter(rule=rule).propose(PROMPT, 3))
    ids = list(PROMPT)
    for row, token in zip(np.array(draft.log_q), draft.tokens.tolist(), strict=True):
        logits = np.array(NETWORK(mx.array([ids]))[0, -1]) / 0.7
        expected = np.exp(logits - logits.max())
        np.testing.assert_allclose(np.exp(row), expected / expected.sum(), atol=1e-4)
        ids.append(token)


@pytest.mark.parametrize(("rule", "temperature"), [("greedy", 0.0), ("coupled", 1.0), ("token", 1.0), ("block", 1.0)])
def test_penalties_of_a_draft_count_its_own_tokens(rule, temperature):
    """Five tokens can be said, none of them twice: a draft that is the target drafts four, and all are accepted."""
    for seed in range(4):
        sayable = [3 + (31 * i + 7 * seed) % 250 for i in range(5)]
        bias = tuple((token, 1e4) for token in sayable)
        sampling = Sampling(temperature, presence_penalty=1e3, logit_bias=bias)
        rule_of = make_rule(rule, Sampler(sampling, seed, PROMPT, V))
        draft = finished(drafter(rule=rule_of).propose(PROMPT, 4))
        assert len({*draft.tokens.tolist()} & {*sayable}) == 4
        logits = CachedModel(NETWORK, "target").logits(PROMPT, draft.tokens)
        assert int(rule_of.judge(draft, logits, len(PROMPT)).accepted) == 4
