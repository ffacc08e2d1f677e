"""When an answer has become a loop."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.models.text import Repetition


def first_found(ids, tokens):
    """Tokens fed when the loop was found, None without one."""
    watch = Repetition(tokens)
    return next((place for place, token in enumerate(ids, 1) if watch.feed(token)), None)


def by_definition(ids, tokens):
    for end in range(tokens, len(ids) + 1):
        last = ids[end - tokens : end]
        if any(last[p:] == last[:-p] for p in range(1, tokens // 2 + 1)):
            return end
    return None


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(2, 12))
def test_a_loop_is_found_at_the_token_the_definition_says(ids, tokens):
    assert first_found(ids, tokens) == by_definition(ids, tokens)


def test_nothing_is_watched_for_at_0():
    assert first_found([1] * 500, 0) is None
