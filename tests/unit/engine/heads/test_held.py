"""A head's cache that was kept and taken up again is the one that it was."""

import mlx.core as mx
import pytest

from fakes.heads import agreeing_head, cached_head, tiny_target

TOKENS = [3 + i * i % 90 for i in range(20)]


@pytest.fixture(scope="module")
def target():
    return tiny_target("qwen3_5")


def states(target, tokens):
    size = target.network.hidden.output_head.hidden_size
    return mx.random.normal((tokens, size), key=mx.random.key(5))


@pytest.fixture
def head(target):
    """It read 12 entries, three more wait, and two were drafted."""
    found = cached_head(target, agreeing_head(target))
    found.hand_over(TOKENS[:13], states(target, 12))
    step = found.first()
    for token in (4, 5):
        step = found.next(mx.array([token]), step.carried)
    return found


@pytest.mark.parametrize("more", [0, 3], ids=["nothing waits", "states wait"])
def test_it_goes_on_to_the_same_guesses(target, head, more):
    if more:
        head.hand_over(TOKENS[: 13 + more], states(target, more))
    again = head.fresh()
    again.restore(head.stored())
    assert (again.length, again.cached) == (12 + more, 12) and again.follows(TOKENS[: 13 + more])
    assert mx.array_equal(again.first().scored, head.first().scored)
    for one in (again, head):
        one.hand_over(TOKENS[:18], states(target, 3))
    assert mx.array_equal(again.first().scored, head.first().scored)
