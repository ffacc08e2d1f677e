"""Law: answers drawn round after round follow the target, and each known mistake is noticed by the same test."""

import math

import mlx.core as mx
import numpy as np
import pytest

from fakes.broken_rules import log, raw_residual, swapped, tokens_residual_under_block
from specdec_cli.engine.sampling.noise import Noise
from specdec_cli.engine.sampling.rejection import draw_block, draw_token, plan_block, plan_token
from specdec_cli.engine.sampling.warps import draw


def chi_square_bound(degrees, odds):
    """A chi-square of `degrees` exceeds it with less than `odds` (Laurent and Massart 2000, lemma 1)."""
    t = -math.log(odds)
    return degrees + 2 * math.sqrt(degrees * t) + 2 * t


class Given:
    """Noise that was drawn before, so that thousands of answers are one call."""

    def __init__(self, uniform, gumbel):
        self._uniform, self._gumbel = uniform, gumbel

    def uniform(self, stream, position, width):
        return self._uniform

    def gumbel(self, stream, position, width):
        return self._gumbel


WIDTH, K, LENGTH = 3, 2, 2
ROUNDS = range(LENGTH)


def by_draw(round, start):
    return start * 0 + 10 * round


def by_absolute_position(round, start):
    return start


def answers(plan, draw_verdict, p, q, n, draft_position=by_draw, shared=False):
    """The first LENGTH tokens of n answers [n, LENGTH], in rounds of K draft tokens from q, all drawn from `Noise`."""
    noise, log_p, log_q = Noise(7), log([p] * (K + 1)), log([q] * K)
    drafts = noise.gumbels("draft", 0, 20, n * WIDTH).reshape(20, n, WIDTH)
    text, start = np.zeros((n, LENGTH + K + 1), int), np.zeros(n, int)
    for round in ROUNDS:
        at = draft_position(round, start)[None] + np.arange(K)[:, None]
        gumbel = drafts[mx.array(at), mx.arange(n)]  # [K, n, V]
        drafted = draw(log_q[:, None], gumbel).T
        uniform = noise.uniform("accept", round, n * K).reshape(n, K)
        residual = gumbel[0] if shared else noise.gumbel("residual", round, n * WIDTH).reshape(n, WIDTH)
        judge = mx.vmap(lambda x, u, g: mx.stack(draw_verdict(plan(x, log_q, log_p), Given(u, g), 0)))
        accepted, token = np.array(judge(drafted, uniform, residual)).T
        for i in range(K + 1):
            emitted = np.where(i < accepted, np.array(drafted)[:, min(i, K - 1)], token)
            rows = np.flatnonzero((i <= accepted) & (start < LENGTH))
            text[rows, start[rows] + i] = emitted[rows]
        start = np.where(start < LENGTH, start + accepted + 1, start)
    return text[:, :LENGTH]


def assert_follows(texts, p):
    counts = np.bincount(np.ravel_multi_index(tuple(texts.T), (WIDTH,) * LENGTH), minlength=WIDTH**LENGTH)
    expected = len(texts) * np.outer(p, p).ravel()
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(WIDTH**LENGTH - 1, 1e-6)


LAWS = [
    (np.array([0.46, 0.15, 0.39]), np.array([0.26, 0.07, 0.67])),
    (np.array([0.45, 0.35, 0.2]), np.array([0.05, 0.25, 0.7])),
]
RULES = [(plan_token, draw_token), (plan_block, draw_block)]


@pytest.mark.parametrize(("plan", "draw_verdict"), RULES)
@pytest.mark.parametrize(("p", "q"), LAWS)
def test_drawn_answers_follow_the_target(plan, draw_verdict, p, q):
    """N = 50 000 answers of 2 tokens, K = 2, 9 cells: chi-square 8 ± 4, bound 56.6, false alarm < 1e-6 each."""
    assert_follows(answers(plan, draw_verdict, p, q, 50_000), p)


@pytest.mark.parametrize(
    ("broken", "draw_verdict"),
    [
        (raw_residual(plan_token), draw_token),
        (raw_residual(plan_block), draw_block),
        (swapped(plan_token), draw_token),
        (swapped(plan_block), draw_block),
        (tokens_residual_under_block, draw_block),
        (plan_token, draw_block),
        (plan_block, draw_token),
    ],
)
def test_broken_rules_are_noticed_in_the_answers(broken, draw_verdict):
    """Negative controls of the test above: wrong residual, swapped ratio, one rule's plan under another's draw."""
    with pytest.raises(AssertionError):
        for p, q in LAWS:
            assert_follows(answers(broken, draw_verdict, p, q, 50_000), p)


@pytest.mark.parametrize(("plan", "draw_verdict"), RULES)
def test_noise_shared_by_draft_and_residual_is_noticed(plan, draw_verdict):
    """Negative control: the draft and the next token come from the same noise, as in vllm#54282."""
    p, q = LAWS[1]
    with pytest.raises(AssertionError):
        assert_follows(answers(plan, draw_verdict, p, q, 50_000, shared=True), p)


def test_draft_noise_repeated_at_a_position_is_noticed_under_block():
    """Negative control: the second round drafts with noise that the first round's verdict has already looked at.

    Enumeration puts the chi-square at 8 + 0.021 N = 1060 for N = 50 000, bound 56.6.
    """
    p, q = LAWS[0]
    with pytest.raises(AssertionError):
        assert_follows(answers(plan_block, draw_block, p, q, 50_000, by_absolute_position), p)
