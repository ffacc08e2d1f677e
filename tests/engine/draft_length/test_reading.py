"""What the draft has not read, and its price."""

import pytest

from specdec_cli.engine.draft_length.costs import PREFILL_TOKENS, CostRecord, Costs
from specdec_cli.engine.draft_length.reading import Reading


def measured():
    costs = CostRecord(Costs({2: 1.2}, {1: 0.1}, prefill_token=0.01))
    costs.plain(1.0)
    return costs


def test_plain_rounds_leave_their_tokens_unread_and_a_drafted_one_reads_all():
    reading = Reading(0.0)
    reading.begin(100, None)
    reading.emitted(1, drafted=False)
    assert reading.unread == 101 and reading.seconds(measured()) == pytest.approx(1.01)
    reading.emitted(3, drafted=True)
    assert reading.unread == 0 == reading.seconds(measured())


def test_a_draft_that_rested_reads_everything_again_after_it_was_loaded():
    reading = Reading(7.0)
    reading.begin(100, None)
    reading.emitted(4, drafted=True)
    reading.rest()
    assert reading.resting and reading.unread == 104
    assert reading.seconds(measured()) == pytest.approx(7.0 + 1.04)
    reading.emitted(1, drafted=True)
    assert not reading.resting


def test_an_estimate_serves_until_reading_was_measured():
    reading, costs = Reading(0.0), measured()
    reading.begin(100, 5.0)
    assert reading.seconds(costs) == pytest.approx(5.0) and reading.doubted_seconds(costs) > 7.0
    costs.prefilled(PREFILL_TOKENS, 2.0 * PREFILL_TOKENS)
    assert reading.seconds(costs) == reading.doubted_seconds(costs) == pytest.approx(200.0)
