"""The automaton against a search of every place."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.drafters.suffix_automaton import SuffixAutomaton

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


@given(TEXTS, st.integers(1, 12))
def test_a_continuation_goes_round_where_the_text_ends(text, k):
    lookup = SuffixAutomaton()
    lookup.follow(text)
    repeated = text[lookup.match.start :] if lookup.match.length else []
    assert lookup.continuation(k) == (repeated * k)[:k]
