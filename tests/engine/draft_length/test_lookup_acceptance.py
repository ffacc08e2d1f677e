"""Acceptance of looked-up tokens by the length of the match."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_cli.engine.draft_length.lookup_acceptance import CLASSES, FADE_TOKENS, SHORTEST_MATCH, LookupAcceptance


def test_rates_follow_what_was_accepted_after_matches_of_that_length():
    record = LookupAcceptance()
    before = record.rates(2, 1)[0]
    for _ in range(20):
        record.drafted(2, 4, 0)  # a short match fails at once
        record.drafted(12, 4, 4)  # a long one is accepted
    assert record.rates(2, 1)[0] < 0.1 < before
    assert record.rates(12, 4)[0] > 0.9
    assert record.rates(SHORTEST_MATCH - 1, 4) == []


def test_a_class_that_failed_is_tried_again_after_other_text():
    record = LookupAcceptance()
    for _ in range(20):
        record.drafted(4, 1, 0)
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


def test_a_token_is_judged_in_the_class_of_the_match_as_it_had_grown():
    """After a match of 2, the third token of a draft is judged as one after a match of 4."""
    record, before = LookupAcceptance(), LookupAcceptance()
    for _ in range(30):
        record.drafted(2, 8, 2)
    assert record.rates(2, 1)[0] > 0.9 and record.rates(3, 1)[0] > 0.9 and record.rates(4, 1)[0] < 0.1
    assert record.rates(6, 4) == before.rates(6, 4)


def test_counts_come_back_through_json_and_other_classes_are_left_out():
    record, later = LookupAcceptance(), LookupAcceptance()
    record.drafted(4, 8, 3)
    later.restore(json.loads(json.dumps(record.to_dict())))
    assert later.rates(2, 8) == record.rates(2, 8)
    later.restore({"judged": [1.0], "accepted": [1.0]})
    assert later.rates(2, 8) == record.rates(2, 8)
