"""Answers against plain decoding's, token by token."""

from __future__ import annotations

import math

import mlx.core as mx
import pytest

from specdec_cli.audit.compare import compare
from specdec_cli.engine.baseline import PlainStep

SCORES = mx.array([0.0, 1.0, 3.0, 2.5])


def compared(*answers, plain=(2, 2, 2)):
    steps = [PlainStep(token, SCORES, SCORES) for token in plain]
    return compare([7], steps, answers, lambda token: f"<{token}>")


def test_the_text_of_plain_decoding_is_kept_once_for_all_answers():
    text, found = compared([2, 2, 2], [2, 2, 2])
    assert (text.prompt, text.tokens) == ([7], [2, 2, 2])
    assert [(one.tokens, one.divergence) for one in found] == [(3, None), (3, None)]


def test_each_answer_has_its_own_first_difference_with_the_gap_of_scores():
    _, (first, second) = compared([2, 3, 1], [1, 2, 2])
    assert (first.tokens, first.divergence.position, first.divergence.gap) == (2, 1, 0.5)
    assert (str(first.divergence.plain), str(first.divergence.specdec)) == ('2 "<2>"', '3 "<3>"')
    assert (second.tokens, second.divergence.gap) == (1, 2.0)


@pytest.mark.parametrize(("answer", "tokens"), [([2, 2], 3), ([2, 2, 2, 2], 4), ([], 1)])
def test_an_answer_that_ends_elsewhere_diverges_without_a_gap(answer, tokens):
    _, (found,) = compared(answer)
    assert (found.tokens, found.divergence.gap) == (tokens, math.inf)
    assert not found.divergence.near_tie
    assert [found.divergence.plain, found.divergence.specdec].count(None) == 1
