"""What a target says next, from the target alone; many short answers of the engine; and a test of them against that.

Nothing of the law is the engine's: every prefix is a full pass without a cache, probabilities are float64, top-p is a
full sort. Letters: N answers, L tokens of each, V vocabulary width.

`assert_follows` makes these chi-squares, each with a probability of at most ODDS to fail by chance (by the chi-square
limit; every cell expects at least SMALLEST_CELL answers, what is rarer is one cell together):

* cells: the tokens at one or two positions, against the joint law of whole answers.
* levels: each token's place in the target's own cumulative law after its own prefix (Rosenblatt 1952). Under the law
  these are independent and uniform, whatever the order of the tokens. Here the tokens that the target favours over the
  draft come first, so accepting too much or too little shows at every position; neighbours are tested jointly.
* repeats: how often a token equals the one before it. Noise that is used twice draws the same token twice.
"""

import math
import time
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from fakes.models import TINY
from specdec_cli.engine.decode import decode
from specdec_cli.engine.sampling.warps import Sampling

SMALLEST_CELL = 50
ODDS = 1e-9
BINS, PAIR_BINS = 10, 4


def tail(chi_square, degrees):
    """The probability that a chi-square of `degrees` is at least this large: the closed form for whole degrees.

    Each term comes from the one before: powers and factorials of their own overflow at a few hundred.
    """
    x, odd = chi_square / 2, degrees % 2
    total, term = (math.erfc(math.sqrt(x)), 2 * math.exp(-x) * math.sqrt(x / math.pi)) if odd else (0.0, math.exp(-x))
    for j in range(1, degrees // 2 + 1):
        total += term
        term *= x / (j + odd / 2)
    return total


def assert_likely(counts, expected, what):
    if len(expected) < 2:  # no cell is likely enough to say anything
        return
    chi_square = ((counts - expected) ** 2 / expected).sum()
    odds = tail(chi_square, len(expected) - 1)
    assert odds > ODDS, f"{what}: chi-square {chi_square:.0f} over {len(expected)} cells has odds {odds:.0e}"


def probabilities(network, prompt, prefixes, sampling):
    """[n, V] after the prompt and each of `prefixes` [n, l], after temperature and top-p.

    A token stays iff the tokens before it in the sorted row have less than top-p.
    """
    contexts = np.concatenate([np.tile(prompt, (len(prefixes), 1)), prefixes], axis=1)
    logits = network(mx.array(contexts.astype(np.int32)))[:, -1]
    scores = np.array(logits, np.float64) / sampling.temperature
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    order = np.argsort(-p, axis=-1, kind="stable")
    ranked = np.take_along_axis(p, order, -1)
    ranked[np.cumsum(ranked, -1) - ranked >= sampling.top_p] = 0
    np.put_along_axis(p, order, ranked, -1)
    return p / p.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Law:
    """`odds` [n] of the `sequences` [n, L]: all that begin with a likely prefix. What is left of 1 begins otherwise."""

    sequences: np.ndarray
    odds: np.ndarray
    width: int

    @classmethod
    def of(cls, network, prompt, length, sampling, floor=0.0):
        """Only prefixes with odds above `floor` are followed."""
        known, odds = np.zeros((1, 0), int), np.ones(1)
        for _ in range(length):
            known, odds = known[odds > floor], odds[odds > floor]
            p = odds[:, None] * probabilities(network, prompt, known, sampling)
            rows, tokens = np.nonzero(p)
            known, odds = np.concatenate([known[rows], tokens[:, None]], axis=1), p[rows, tokens]
        return cls(known, odds, p.shape[-1])

    def assert_cells(self, texts, positions):
        """The tokens of `texts` [N, L] at `positions`, jointly; a text of a prefix not followed is in the last cell."""
        powers = self.width ** np.arange(len(positions))
        cells, cell_of = np.unique(self.sequences[:, positions] @ powers, return_inverse=True)
        expected = len(texts) * np.bincount(cell_of, self.odds)
        known = texts[self._followed(texts)][:, positions] @ powers
        counts = np.bincount(np.searchsorted(cells, known), minlength=len(cells))
        likely = expected >= SMALLEST_CELL
        counts, expected = counts[likely], expected[likely]
        rest = len(texts) - expected.sum()
        if rest >= SMALLEST_CELL:
            counts, expected = np.append(counts, len(texts) - counts.sum()), np.append(expected, rest)
        assert_likely(counts, expected, f"tokens at {positions}")

    def _followed(self, texts):
        """Which `texts` begin with a prefix that was followed."""
        powers = self.width ** np.arange(texts.shape[1] - 1)
        return np.isin(texts[:, :-1] @ powers, self.sequences[:, :-1] @ powers)


def levels(networks, prompt, texts, sampling):
    """Levels [N, L], uniform under the law, and for each token [N, L] the odds that it repeats the one before it."""
    dice = np.random.default_rng(0).random(texts.shape)
    found, repeating = np.zeros(texts.shape), np.zeros(texts.shape)
    for i, token in enumerate(texts.T):
        prefixes, row = np.unique(texts[:, :i], axis=0, return_inverse=True)
        row = row.ravel()
        p, q = (probabilities(network, prompt, prefixes, sampling) for network in networks)
        order = np.argsort(-p / np.maximum(q, 1e-30), axis=-1, kind="stable")
        ranked = np.take_along_axis(p, order, -1)
        below = np.zeros(p.shape)
        np.put_along_axis(below, order, np.cumsum(ranked, -1) - ranked, -1)
        assert (p[row, token] > 0).all(), f"token {i}: {token[p[row, token] == 0][0]} has probability 0"
        found[:, i] = below[row, token] + dice[:, i] * p[row, token]
        repeating[:, i] = p[row, texts[:, i - 1]] if i else 0
    return found, repeating


def assert_follows(networks, prompt, texts, sampling, floor=0.0):
    """`texts` [N, L] follow the law of the target, the first of the `networks`; the second is the draft."""
    length = texts.shape[1]
    law = Law.of(networks[0], prompt, length, sampling, floor)
    for positions in [*([i] for i in range(1, length)), [1, 2]]:
        law.assert_cells(texts, positions)
    found, repeating = levels(networks, prompt, texts, sampling)
    uniform = np.bincount((found[:, 1:] * BINS).astype(int).ravel().clip(0, BINS - 1), minlength=BINS)
    assert_likely(uniform, np.full(BINS, uniform.sum() / BINS), "levels")
    coarse = (found * PAIR_BINS).astype(int).clip(0, PAIR_BINS - 1)
    for i in range(length - 1):
        pairs = np.bincount(coarse[:, i] * PAIR_BINS + coarse[:, i + 1], minlength=PAIR_BINS**2)
        assert_likely(pairs, np.full(len(pairs), len(texts) / len(pairs)), f"levels of tokens {i} and {i + 1}")
    repeats = (texts[:, 1:] == texts[:, :-1]).sum() - repeating.sum()
    variance = (repeating * (1 - repeating)).sum()
    if not variance:  # every repetition has probability 0 or 1, and one of probability 0 has failed above
        assert abs(repeats) < 1e-6
        return
    odds = tail(repeats**2 / variance, 1)
    assert odds > ODDS, f"{repeats:.0f} repeats too many have odds {odds:.0e}"


# Many short answers of the whole engine to one prompt, a seed each, from one target's caches.

PROMPT, K = [1, 2, 3], 2
SMALL = TINY | {
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}
# (rule, warps) under which answers from drafts of any kind follow the target.
CASES = (
    ("token", Sampling(1.0)),
    ("block", Sampling(1.0)),
    ("coupled", Sampling(0.6)),
    ("match", Sampling(1.0)),
    ("block", Sampling(0.6, top_p=0.9)),
)


def answers(target, begin, n, prompt=PROMPT, k=K):
    """(tokens [n, k + 2], all rounds). `begin(seed, context)` gives drafters and rule of an answer."""
    texts, rounds = [], []
    for seed in range(n):
        context = list(prompt)
        target.reuse(context)
        drafters, rule = begin(seed, context)
        made = list(decode(target, drafters, rule, context, k + 2, frozenset(), time.perf_counter))
        assert sum(len(round.emitted) for round in made) == k + 2
        texts.append(context[len(prompt) :])
        rounds += made
    return np.array(texts), rounds
