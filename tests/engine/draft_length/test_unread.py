"""What the draft has not read, and what reading it costs."""

from __future__ import annotations

from math import inf

from specdec_cli.engine.draft_length.costs import CostRecord
from specdec_cli.engine.draft_length.ratios import Costs
from specdec_cli.engine.draft_length.unread import Unread


def begun(tokens=100, seconds=None, most=inf, **more):
    unread = Unread(**more)
    unread.begin(tokens, seconds, most)
    return unread


def test_an_estimate_holds_for_the_tokens_it_was_made_for_and_grows_with_them():
    unread = begun(100, seconds=2.0)
    unread.tokens += 50
    assert unread.seconds(CostRecord(Costs())) == 3.0


def test_without_an_estimate_the_assumed_cost_counts():
    costs = CostRecord(Costs())
    assert begun(100).seconds(costs) == 100 * costs.prefill_token_seconds()


def test_what_was_measured_takes_the_place_of_an_estimate():
    costs = CostRecord(Costs())
    costs.prefilled(200, 0.5)
    unread = begun(100, seconds=2.0)
    assert costs.prefill_known and unread.seconds(costs) == 100 * costs.prefill_token_seconds()


def test_no_more_is_read_at_once_than_a_draft_that_keeps_up_has_to():
    assert begun(1000, seconds=10.0, most=128).seconds(CostRecord(Costs())) == 1.28


def test_a_draft_at_rest_reads_everything_again_and_is_loaded_again():
    unread = begun(0, reload_seconds=3.0)
    unread.context += 40
    assert unread.seconds(CostRecord(Costs())) == 0.0
    unread.rest()
    costs = CostRecord(Costs())
    assert (unread.tokens, unread.seconds(costs)) == (40, 40 * costs.prefill_token_seconds() + 3.0)
    unread.read()
    assert (unread.tokens, unread.resting) == (0, False)
