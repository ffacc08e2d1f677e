"""Guessed tokens: their number is known without reading them back."""

import mlx.core as mx
import pytest

from specdec_cli.engine.draft import NO_TOKENS, NOTHING, Draft
from specdec_cli.kinds import NONE


@pytest.mark.parametrize("k", [0, 1, 8])
def test_its_length_is_k_and_nothing_is_computed_for_it(k):
    lazy = mx.arange(8)[:k] // mx.zeros((), mx.int32)
    assert len(Draft(lazy)) == k


def test_no_draft_has_no_tokens_no_law_and_nobody_who_guessed():
    assert (len(NOTHING), NOTHING.log_q, NOTHING.drafter) == (0, None, NONE.name)
    assert NO_TOKENS.shape == (0,) and NO_TOKENS.dtype == mx.int32


def test_no_tokens_join_others_and_leave_their_type():
    joined = mx.concatenate([NO_TOKENS, mx.array([3, 4], dtype=mx.int32)])
    assert joined.dtype == mx.int32 and joined.tolist() == [3, 4]


def test_a_draft_cannot_be_changed():
    with pytest.raises(AttributeError):
        NOTHING.drafter = "model"
