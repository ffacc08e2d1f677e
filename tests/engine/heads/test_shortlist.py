"""Drafting over some tokens only: the same scores for them, no odds for the others, whatever the output head is."""

import copy

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from fakes.heads import cached_head, tiny_target
from specdec_cli.engine.heads import shortlist
from specdec_cli.engine.heads.agreement import Text
from specdec_cli.engine.heads.shortlist import MOST_SEEN, NO_ODDS, Shortlist, best_shortlist, coverage
from specdec_cli.engine.output_head import Adjustment, OutputHead
from specdec_cli.engine.sampling.warps import Sampling, log_probs

V, D, FIRST = 2000, 64, 500


class Network(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head


def linear(bias=False):
    module = nn.Linear(D, V, bias=bias)
    module.update({name: mx.random.normal(value.shape, key=mx.random.key(3)) for name, value in module.items()})
    return module


HEADS = {
    "plain": lambda: (linear(), "__call__"),
    "with a bias": lambda: (linear(bias=True), "__call__"),
    "4 bits": lambda: (linear().to_quantized(group_size=32, bits=4), "__call__"),
    "mxfp4": lambda: (linear().to_quantized(group_size=32, bits=4, mode="mxfp4"), "__call__"),
    "tied": lambda: (nn.Embedding(V, D), "as_linear"),
    "tied in 8 bits": lambda: (nn.Embedding(V, D).to_quantized(group_size=64, bits=8), "as_linear"),
}


def output_head(head, vocab_size=V, adjustment=None):
    module, method = HEADS[head]()
    return OutputHead(Network(module), vocab_size, D, "head", method, adjustment or Adjustment(), None, None, None)


@pytest.mark.parametrize(("head", "vocab_size"), [*((head, V) for head in HEADS), ("plain", V - 8)])
def test_scored_tokens_have_their_own_scores_and_the_others_no_odds(head, vocab_size):
    whole = output_head(head, vocab_size, Adjustment(0.5, 8.0))
    cut = Shortlist(whole, FIRST, always=(1990, 3))
    cut.see([7, 600, 1200, 600])
    hidden = mx.random.normal((3, D), key=mx.random.key(1))
    exact, found = np.array(whole.logits(hidden)), np.array(cut.logits(hidden))
    assert found.shape == exact.shape == (3, vocab_size)
    inside = [*range(FIRST), 600, 1200, 1990]
    np.testing.assert_allclose(found[:, inside], exact[:, inside], atol=1e-5)
    outside = np.delete(found, inside, axis=1)
    assert (outside == NO_ODDS).all() and cut.proven
    q = np.array(mx.exp(log_probs(mx.array(found), Sampling(2.0))))
    assert (np.delete(q, inside, axis=1) == 0).all()
    assert cut.nbytes == pytest.approx((FIRST + 3) / vocab_size * whole.nbytes, abs=1)


def test_rows_that_do_not_score_by_themselves_are_noticed():
    class Normed(nn.Linear):
        def __call__(self, x):
            scores = super().__call__(x)
            return scores - scores.mean(axis=-1, keepdims=True)

    module = Normed(D, V)
    assert not Shortlist(
        OutputHead(Network(module), V, D, "head", "__call__", Adjustment(), None, None, None), 50
    ).proven


def test_each_conversation_has_the_tokens_of_its_own_text():
    one = Shortlist(output_head("plain"), FIRST, always=(1990,))
    one.see([1200])
    other, hidden = one.fresh(), mx.random.normal((1, D), key=mx.random.key(1))
    assert float(one.logits(hidden)[0, 1200]) != NO_ODDS == float(other.logits(hidden)[0, 1200])
    assert float(other.logits(hidden)[0, 1990]) != NO_ODDS


def test_the_oldest_tokens_of_a_long_text_give_way():
    cut = Shortlist(output_head("plain"), FIRST)
    cut.see(range(FIRST, FIRST + MOST_SEEN + 10))
    found = cut.logits(mx.ones((1, D)))[0]
    assert float(found[FIRST]) == NO_ODDS != float(found[FIRST + MOST_SEEN + 9])


def test_a_heads_text_is_seen_from_the_prompt_on():
    target = tiny_target()
    head = cached_head(target, first=8, always=(2,))
    context = [1, 50, 60, 70]
    output = target.fresh().forward(mx.array(context[:-1]))
    head.hand_over(context, output.hidden[head.head.recipe.reads])
    scores = np.array(head.logits(head.first().scored)[0])
    exact = np.array(head.head.output_head.logits(head.first().scored)[0])
    inside = [*range(8), 50, 60, 70]
    np.testing.assert_allclose(scores[inside], exact[inside], atol=1e-5)
    assert (np.delete(scores, inside) == NO_ODDS).all()
    whole = copy.copy(head.head)
    whole.shortlist = None
    assert head.step_bytes < whole.step_bytes


def text(prompt, words):
    return Text([*prompt, *words], len(prompt), {})


def chosen(texts, step_bytes, acceptance=0.85, head="plain"):
    """The size of the list that is chosen, 0 for none; the layer reads 1 % of a plain step."""
    found = best_shortlist(output_head(head), round(0.01 * step_bytes), step_bytes, texts, acceptance, ())
    return found.first if found else 0


def test_a_word_is_covered_by_its_place_or_once_the_text_has_it():
    """7 and 8 are of the prompt; one word less is counted, since few words prove little."""
    for words, expected in ([1, 2, 3], 3 / 4), ([1, 9, 9, 9], 3 / 5), ([7, 8], 2 / 3), ([30, 31], 0.0):
        assert coverage([text([7, 8], words)], 4, ()) == pytest.approx(expected)
    assert coverage([text([], [40])], 4, (40,)) == 0.5


def test_the_smallest_part_that_has_the_words_is_taken_where_scores_are_dear(monkeypatch):
    monkeypatch.setattr(shortlist, "LEAST", 100)
    dear, cheap = 3 * output_head("plain").nbytes, 1000 * output_head("plain").nbytes
    frequent = [text([], [1, 2, 3, 1, 2, 0] * 50)]
    assert chosen(frequent, dear) == V // 16
    assert chosen(frequent, cheap) == 0
    assert chosen([text([], [word]) for word in range(V)], 10 * dear) == 0
    assert chosen([], dear) == 0
