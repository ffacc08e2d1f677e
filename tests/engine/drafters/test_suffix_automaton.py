"""The automaton against a search of every place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.drafters.suffix_automaton import REMEMBERED, STEP_TOKENS, SuffixAutomaton

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def earlier_ends(text, length):
    """Where the last `length` tokens of `text` ended before, by looking everywhere."""
    return [i + length for i in range(len(text) - length) if text[i : i + length] == text[len(text) - length :]]


@given(TEXTS)
def test_the_match_is_the_longest_end_that_occurred_before(text):
    lookup = SuffixAutomaton()
    lookup.follow(text)
    longest = max((n for n in range(1, len(text)) if earlier_ends(text, n)), default=0)
    assert lookup.match.length == longest
    if longest:
        assert lookup.match.start in earlier_ends(text, longest)


def states(text):
    lookup = SuffixAutomaton()
    lookup.follow(text)
    return len(lookup._next), sum(map(len, lookup._next))


@given(TEXTS)
def test_the_index_stays_linear_in_the_text(text):
    """The automaton's own bounds: 2 n states and 3 n transitions."""
    found, transitions = states(text)
    assert found <= 2 * len(text) + 1 and transitions <= 3 * len(text) + 1


@given(TEXTS, st.data())
def test_following_step_by_step_equals_following_at_once(text, data):
    stepwise, at_once = SuffixAutomaton(), SuffixAutomaton()
    for cut in [*sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4))), len(text)]:
        stepwise.follow(text[:cut])
    at_once.follow(text)
    assert stepwise.match == at_once.match and len(stepwise) == len(text)


@given(TEXTS, st.integers(1, 12))
def test_a_continuation_goes_round_where_the_text_ends(text, k):
    lookup = SuffixAutomaton()
    lookup.follow(text)
    repeated = text[lookup.match.start :] if lookup.match.length else []
    assert lookup.continuation(k) == (repeated * k)[:k]


def test_work_does_not_grow_with_the_text():
    """Steps over states while appending: amortised at most a few a token, for the worst of small alphabets."""

    class Counted(dict):
        reads = 0

        def __contains__(self, token):
            Counted.reads += 1
            return super().__contains__(token)

    class Watched(SuffixAutomaton):
        def _add(self, longest, following, after):
            return super()._add(longest, Counted(following), after)

    found = {}
    for size in (1000, 4000):
        Counted.reads = 0
        Watched().follow([(i * i // 7) % 3 for i in range(size)])
        found[size] = Counted.reads / size
    assert found[4000] < 1.5 * found[1000] < 10


@pytest.mark.parametrize("predicted", [[], [5, 6, 7] * 5000])
def test_a_long_beginning_is_taken_in_by_steps_and_nothing_matches_before_its_end(predicted):
    """The bug: 400,000 predicted tokens took half a minute in which no reply could be cancelled."""
    prompt, opened = [1, 2, 3, 4] * 5000, 0
    stepwise, at_once = SuffixAutomaton(prompt, predicted), SuffixAutomaton()
    while not stepwise.open():
        opened += 1
        assert not stepwise.match.length and len(stepwise) == opened * STEP_TOKENS
    assert opened == (4 if predicted else 2)
    stepwise.follow([*prompt, 1, 2])
    at_once.follow([*prompt, 1, 2])
    assert stepwise.match.length == (REMEMBERED + 2 if predicted else at_once.match.length)
