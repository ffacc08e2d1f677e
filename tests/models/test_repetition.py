"""When an answer has become a loop."""

import random

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


def test_a_phrase_is_found_when_it_has_filled_the_last_tokens():
    assert first_found([9, 8, 7, *[1, 2, 3] * 20], 12) == 3 + 12


def test_a_phrase_longer_than_half_of_them_is_not_found():
    assert first_found([1, 2, 3, 4, 5, 6, 7] * 9, 12) is None


def test_text_without_loops_is_not_found():
    """4,000 ids drawn from 50: the odds that 24 of them repeat a phrase of up to 12 are below 4000 × 12 / 50**12."""
    rng = random.Random(0)
    assert first_found([rng.randrange(50) for _ in range(4000)], 24) is None


def test_nothing_is_watched_for_at_0():
    assert first_found([1] * 500, 0) is None
