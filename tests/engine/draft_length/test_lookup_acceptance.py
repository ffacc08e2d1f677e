"""Acceptance of looked-up tokens by the length of the match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.acceptance import CLASSES, FADE_TOKENS, SHORTEST_MATCH, LookupAcceptance


def test_rates_follow_how_the_text_went_on_after_matches_of_that_length():
    record = LookupAcceptance()
    before = record.rates(2, 1)[0]
    for _ in range(20):
        record.judged(1, True)  # of no use
        record.judged(2, False)  # a short match fails
        for length in range(12, 16):
            record.judged(length, True)  # a long one goes on
    assert record.rates(2, 1)[0] < 0.1 < before
    assert record.rates(12, 4)[0] > 0.9
    assert record.rates(SHORTEST_MATCH - 1, 4) == []


def test_a_class_that_failed_is_tried_again_after_other_text():
    record = LookupAcceptance()
    for _ in range(20):
        record.judged(4, False)
    low = record.rates(4, 1)[0]
    for _ in range(8):
        record.passed(FADE_TOKENS // 2)
    assert low < 0.1 < 0.4 < record.rates(4, 1)[0]


@given(st.integers(SHORTEST_MATCH, 100), st.integers(1, 8))
def test_before_anything_was_seen_longer_matches_promise_more(match, k):
    rates = LookupAcceptance().rates(match, k)
    assert len(rates) == k and rates == sorted(rates)
    lowest = max(bound for bound in CLASSES if bound <= match)
    assert rates[0] == pytest.approx(lowest / (lowest + 2))


def test_a_position_of_a_draft_has_the_rate_of_the_match_as_it_will_have_grown():
    """The third token of a draft after a match of 2 is one after a match of 4."""
    record, before = LookupAcceptance(), LookupAcceptance()
    for _ in range(30):
        for length, accepted in ((2, True), (3, True), (4, False)):
            record.judged(length, accepted)
    first, second, third = record.rates(2, 3)
    assert first > 0.9 and second > 0.9 and third < 0.1
    assert record.rates(6, 4) == before.rates(6, 4)
