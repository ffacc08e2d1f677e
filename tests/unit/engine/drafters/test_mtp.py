"""A head against its own recomputation from nothing: every proposal, after every number of accepted tokens.

The oracle keeps no cache and shares only the decoder layer of mlx-lm with the drafter: one pass of the target over the
whole verified text, one of the head over all of it, and another one for each drafted token.
"""

import mlx.core as mx
import numpy as np
import pytest

from fakes.heads import agreeing_head, cached_head, tiny_head, tiny_target
from fakes.products import spread
from specdec_cli.engine.drafters.base import finished
from specdec_cli.engine.drafters.stepwise import HeadDrafter
from specdec_cli.engine.heads.mtp import Recipe
from specdec_cli.engine.sampling.acceptance import greedy

PROMPT = [(7 * i) % 97 + 3 for i in range(13)]


def norm(values, module):
    values = np.array(values, np.float64)
    return values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-6) * np.array(module.weight, np.float64)


def recomputed(target, head, context, k, recipe=None):
    """The k greedy proposals after `context`, from scratch; and the smallest lead of a best score over the second."""
    recipe = recipe or Recipe()
    output_head = target.network.hidden.output_head
    hidden = np.array(target.fresh().forward(mx.array(context[:-1])).hidden, np.float64)
    tokens, leads = list(context[1:]), []
    for _ in range(k):
        embedded = norm(output_head.embed(mx.array(tokens)), head.pre_fc_norm_embedding)
        pair = [embedded, norm(hidden, head.pre_fc_norm_hidden)]
        joined = np.concatenate(pair if recipe.embedding_first else pair[::-1], -1) @ np.array(head.fc.weight).T
        raw = np.array(head.layers[0](mx.array(joined.astype(np.float32))[None], "causal", None)[0])
        out = norm(raw, head.norm)[-1:]
        scores = np.array(output_head.logits(mx.array(out.astype(np.float32)))[0])
        leads.append(np.diff(np.sort(scores)[-2:])[0])
        tokens.append(int(scores.argmax()))
        hidden = np.concatenate([hidden, out if recipe.carries == "normed" else raw[-1:]])
    return tokens[-k:], min(leads)


class Played:
    """A target and a head, round by round, with verdicts that the test scripts."""

    def __init__(self, target, head, rule=None, recipe=None):
        self.target, self.cached = target, cached_head(target, head, recipe=recipe)
        self.drafter = HeadDrafter(self.cached, target, rule or greedy(target.vocab_size))
        self.context = list(PROMPT)

    def read(self):
        """As a session does: the head reads each chunk of the prompt, the first round drafts nothing."""
        self.target.reuse(self.context)
        self.target.commit(self.context, min(self.target.length, self.drafter.keeps(self.context)))
        for chunk in self.target.prefill(self.context):
            self.drafter.commit(self.context[: self.target.length + 1], chunk.hidden)
        self.round(0, 0, 5)

    def round(self, k, accepted, correction):
        """Propose k tokens, accept so many of them; returns what was proposed."""
        draft = finished(self.drafter.propose(self.context, k)) if k else None
        tokens = draft.tokens if draft else mx.array([], dtype=mx.int32)
        output = self.target.outputs(self.context, tokens)
        self.context += [*tokens.tolist()[:accepted], correction]
        self.target.commit(self.context, len(self.context) - 1)
        hidden = None if output.hidden is None else output.hidden[: accepted + 1]
        self.drafter.commit(self.context, hidden)
        return tokens.tolist()


TARGETS = ["qwen3_5", "qwen3_5_moe", "qwen3_next", "gemma3_text", "qwen3"]


@pytest.mark.parametrize(("name", "k"), spread(TARGETS, [4, 1, 2, 8], quick=2))
def test_every_proposal_is_that_of_a_recomputation_after_every_number_of_accepted_tokens(name, k):
    """Each accepted count 0 … k five times, in an order that mixes them."""
    target = tiny_target(name)
    head = agreeing_head(target)
    played = Played(target, head)
    played.read()
    counts = [(3 * i) % (k + 1) if (k + 1) % 3 else (2 * i + i // (k + 1)) % (k + 1) for i in range(5 * (k + 1))]
    assert all(counts.count(accepted) == 5 for accepted in range(k + 1))
    for i, accepted in enumerate(counts):
        before = list(played.context)
        proposed = played.round(k, accepted, (11 * i) % 97 + 3)
        expected, lead = recomputed(target, head, before, k)
        assert proposed == expected or lead < 1e-4
        assert played.cached.length == len(played.context) - 1 == target.length
        assert played.cached.cached <= len(before) - 1 + k - 1


@pytest.mark.parametrize(
    "recipe",
    [Recipe(carries="raw"), Recipe(embedding_first=False)],
    ids=["raw carried", "state first"],
)
def test_a_recipe_says_what_is_carried_and_joined_in_which_order(recipe):
    target = tiny_target()
    head = tiny_head(recipe=recipe)
    played = Played(target, head, recipe=recipe)
    played.read()
    expected, _ = recomputed(target, head, played.context, 4, recipe)
    assert expected != recomputed(target, head, played.context, 4)[0]
    assert played.round(4, 2, 9) == expected
    context = list(played.context)
    assert played.round(3, 1, 5) == recomputed(target, head, context, 3, recipe)[0]


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3"])
def test_states_that_nobody_handed_over_are_read_again(name):
    """The prompt was read without the head, as by another drafter of the same conversation."""
    target = tiny_target(name)
    head = agreeing_head(target)
    played = Played(target, head)
    for _ in target.prefill(played.context):
        pass
    played.round(0, 0, 5)
    steps = list(played.drafter.propose(played.context, 3))
    assert len(steps) > 2 and steps[-1] is None and target.length == len(played.context) - 1
    before = list(played.context)
    assert played.round(3, 2, 9) == recomputed(target, head, before, 3)[0]


@pytest.mark.parametrize("kept", [3, 6, 8])
def test_after_a_cut_amid_states_that_wait_every_proposal_is_that_of_a_head_that_read_the_text(kept):
    """Plain rounds leave the states waiting; then the end of the text is another."""
    target = tiny_target("qwen3")
    head = agreeing_head(target)
    old, new = PROMPT[:10], [*PROMPT[: kept + 1], 50, 51, 52, 53]

    def states(context):
        return target.fresh().forward(mx.array(context[:-1])).hidden

    cut, fresh = (cached_head(target, head) for _ in range(2))
    cut.hand_over(old, states(old))
    begin = cut.reuse(new)
    assert begin == cut.length == kept and len(cut._waiting) == 1
    cut.hand_over(new, states(new)[begin:])
    fresh.hand_over(new, states(new))
    assert cut.cached == fresh.cached == 0
    ours, theirs = (one.logits(one.first().scored) for one in (cut, fresh))
    assert mx.allclose(ours, theirs, atol=1e-5)
