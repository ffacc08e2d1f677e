"""Drafting over some tokens only: the same scores for them, no odds for the others, whatever the output head is."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from specdec_cli.engine.heads.load_head import Text
from specdec_cli.engine.heads.shortlist import NO_ODDS, Shortlist, coverage, shortlist_for
from specdec_cli.engine.hidden import OutputHead
from specdec_cli.engine.sampling.warps import Sampling, log_probs

V, D, FIRST = 2000, 64, 500


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


def output_head(head, vocab_size=V):
    return OutputHead(*HEADS[head](), vocab_size, D, None)


@pytest.mark.parametrize(("head", "vocab_size"), [*((head, V) for head in HEADS), ("plain", V - 8)])
def test_scored_tokens_have_their_own_scores_and_the_others_no_odds(head, vocab_size):
    whole = output_head(head, vocab_size)
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

    assert not Shortlist(OutputHead(Normed(D, V), "__call__", V, D, None), 50).proven


def text(prompt, words):
    return Text([*prompt, *words], len(prompt), mx.array(0))


def test_a_word_is_covered_by_its_place_or_once_the_text_has_it():
    for words, expected in ([1, 2, 3], 1.0), ([1, 9, 9, 9], 3 / 4), ([7, 8], 1.0), ([30, 31], 0.0):
        assert coverage([text([7, 8], words)], 4, ()) == expected
    assert coverage([text([], [40])], 4, (40,)) == 1.0


def test_only_a_large_vocabulary_whose_first_tokens_have_the_words_is_cut():
    large = nn.Linear(D, 3 * 32_768)
    whole = OutputHead(large, "__call__", 3 * 32_768, D, None)
    frequent = [text([], [1, 2, 3, 1, 2, 0] * 50)]
    assert shortlist_for(whole, frequent, (2,)).first == 32_768
    assert shortlist_for(output_head("plain"), frequent, ()) is None
    assert shortlist_for(whole, [text([], range(40_000, 40_100))], ()) is None
