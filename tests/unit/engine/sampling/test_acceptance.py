"""The rules through their two verbs, on laws small enough to see."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.core.kinds import RULES
from specdec_cli.engine.draft import NOTHING, Draft
from specdec_cli.engine.sampling.acceptance import greedy, make_rule
from specdec_cli.engine.sampling.sampler import Sampler
from specdec_cli.engine.sampling.warps import Sampling

V = 6
TOKENS = st.lists(st.integers(0, V - 1), max_size=5)


def one_hot(tokens):
    """Logits [n, V] under which each row can only say its token."""
    return mx.where(mx.arange(V)[None] == mx.array(tokens)[:, None], 50.0, -50.0)


def sampler(temperature=1.0, seed=3):
    return Sampler(Sampling(temperature), seed, (), V)


def draft_of(tokens, log_q=None):
    return Draft(mx.array(tokens, dtype=mx.int32), log_q, "model") if tokens else NOTHING


def verdict(rule, draft, logits, position=10):
    found = rule.judge(draft, logits, position)
    return int(found.accepted), int(found.next)


@pytest.mark.parametrize("name", ["greedy", *RULES])
@given(drafted=TOKENS, text=st.lists(st.integers(0, V - 1), min_size=6, max_size=6))
def test_where_the_target_can_say_one_text_only_every_rule_says_it(name, drafted, text):
    rows = len(drafted) + 1
    rule = greedy(V) if name == "greedy" else make_rule(name, sampler())
    draft = draft_of(drafted, None if name not in ("token", "block") else mx.full((len(drafted), V), -np.log(V)))
    agreeing = next((i for i, token in enumerate(drafted) if token != text[i]), len(drafted))
    assert verdict(rule, draft, one_hot(text[:rows])) == (agreeing, text[agreeing])


@pytest.mark.parametrize("name", ["token", "block"])
def test_the_token_after_a_rejection_is_one_the_draft_gave_too_little(name):
    """p = (0.5, 0.5, 0, …), q = (1, 0, …): a rejected token 0 leaves only token 1; N = 60 seeds, half rejected."""
    p = mx.array([[0.0, 0.0, *[-60.0] * (V - 2)]] * 2)
    log_q = mx.array([[0.0, *[-60.0] * (V - 1)]])
    found = [verdict(make_rule(name, sampler(seed=seed)), draft_of([0], log_q), p) for seed in range(60)]
    assert {token for accepted, token in found if not accepted} == {1}
    assert 15 < sum(accepted for accepted, _ in found) < 45
