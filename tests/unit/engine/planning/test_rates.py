"""Acceptance rates: shrunk where little was seen, and recent."""

from specdec_cli.engine.planning.rates import SHORTEST_MATCH, Acceptance, LookupAcceptance


def observed(rounds, k, accepted, acceptance=None):
    acceptance = acceptance or Acceptance()
    for _ in range(rounds):
        acceptance.observe(k, accepted)
    return acceptance


def test_tokens_after_the_first_rejection_are_not_judged():
    assert observed(1, 8, 2).judged == 3 and observed(1, 8, 2).accepted == 2


def test_of_late_it_follows_the_text_within_a_dozen_rejections_and_in_the_long_run_hardly():
    known = observed(300, 3, 3)
    before = known.habit
    observed(12, 3, 0, known)
    assert known.rate < 0.7 < 0.9 < known.habit < before
    observed(24, 3, 0, known)
    assert known.rate < 0.35


def test_another_reply_soon_shows_another_text():
    """Control: without a new reply the rate stays where it was."""
    old, new = (observed(60, 3, 3, observed(40, 3, 0)) for _ in range(2))
    new.begin()
    for one in (old, new):
        observed(4, 3, 0, one)
    assert new.rate < old.rate - 0.15


def test_rates_follow_how_the_text_went_on_after_matches_of_that_length():
    record = LookupAcceptance()
    before = record.rates(2, 1)[0]
    for _ in range(20):
        record.observe(1, True)  # of no use
        record.observe(2, False)  # a short match fails
        for length in range(12, 16):
            record.observe(length, True)  # a long one goes on
    assert record.rates(2, 1)[0] < 0.1 < before
    assert record.rates(12, 4)[0] > 0.9
    assert record.rates(SHORTEST_MATCH - 1, 4) == []


def test_a_position_of_a_draft_has_the_rate_of_the_match_as_it_will_have_grown():
    """The third token of a draft after a match of 2 is one after a match of 4."""
    record, before = LookupAcceptance(), LookupAcceptance()
    for _ in range(30):
        for length, accepted in ((2, True), (3, True), (4, False)):
            record.observe(length, accepted)
    first, second, third = record.rates(2, 3)
    assert first > 0.9 and second > 0.9 and third < 0.1
    assert record.rates(6, 4) == before.rates(6, 4)
