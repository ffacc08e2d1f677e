"""Passes that replies share: who drafts how many tokens behind their own, by what all of them gain and pay."""

from dataclasses import replace

import pytest

from specdec_cli.core.gain import expected_tokens
from specdec_cli.core.kinds import FORCED, LOOKUP, NONE
from specdec_cli.engine.planning.policy import Plan, Situation, Worth, plan


def rows(cost):
    """[K] plain steps of K + 1 rows, each of which costs so much more than the one before."""
    return tuple(1 + cost * k for k in range(33))


def drafting(row=0.02, step=0.05, rate=0.8, others=1, **more):
    """A reply whose network drafts, among others that do."""
    passes = rows(row)
    steps = tuple(cost + step * k for k, cost in enumerate(passes[:17]))
    worth = Worth(tuple(expected_tokens([rate] * 4)), tuple(step * k for k in range(5)))
    asked = {"network": "model", "deepest": 8, "rate": rate, "steps": steps, "passes": passes, "judged": True} | more
    return Situation(16, others=(worth,) * others, **asked)


def test_all_draft_where_further_rows_hardly_cost_and_none_where_each_costs_a_pass():
    assert plan(drafting()).k > 1 and plan(drafting()).drafter == "model"
    assert plan(drafting(row=0.9)).k == 0 and plan(drafting(row=0.9)).drafter == NONE.name
    assert plan(drafting(rate=0.1)).k == 0


def test_the_more_replies_share_a_pass_the_fewer_tokens_each_drafts():
    """Each has all rows of the pass to pay for, and every other one drafts as well."""
    ks = [plan(drafting(row=0.1, others=others)).k for others in (1, 3, 7)]
    assert ks[0] >= ks[1] >= ks[2] and ks[0] > ks[2]


def test_k_is_the_argmax_of_expected_tokens_over_the_time_of_the_pass_and_all_drafts():
    """By hand: two replies, rows at a tenth of a pass, steps at a twentieth."""
    tokens = expected_tokens([0.8] * 8)
    worth = [(2 * tokens[min(k, 4)], 2 * 0.05 * min(k, 4)) for k in range(5)]
    best = max(range(5), key=lambda k: worth[k][0] / (1 + 0.1 * (2 * (k + 1) - 1) + worth[k][1]))
    assert plan(drafting(row=0.1)).k == best > 0


def test_what_is_looked_up_costs_rows_alone_and_those_who_draft_nothing_pay_for_them_too():
    alone = Situation(16, source=LOOKUP.name, lookup=(0.9,) * 8, match=4, passes=rows(0.02), others=(Worth(),))
    found = plan(alone)
    assert (found.drafter, found.k > 2, found.shared) == (LOOKUP.name, True, True)
    assert plan(replace(alone, others=(Worth(),) * 7, passes=rows(0.2))).k == 0


def test_a_draft_that_has_much_to_read_does_not_begin_for_a_short_answer():
    assert plan(drafting(unread=3000, reading=60.0, left=20)).k == 0
    assert plan(drafting(unread=3000, reading=0.1, left=200)).k > 0


@pytest.mark.parametrize("changed", [{"first": True}, {"most": 0}, {"k": 0}])
def test_nothing_is_drafted_at_first_at_the_end_or_where_that_was_asked_for(changed):
    assert plan(replace(drafting(), **changed)) == Plan(reason="requests share the pass", shared=True)


def test_a_fixed_k_is_the_most_and_forced_tokens_are_drafted_as_they_are():
    assert plan(drafting(k=1)).k == 1
    forced = plan(replace(drafting(row=0.01), forced=3))
    assert (forced.drafter, forced.k) == (FORCED.name, 3)


def test_no_pass_is_wider_than_any_whose_cost_is_known():
    assert plan(drafting(row=0.0, rate=1.0, others=15)).k <= 1
    assert plan(drafting(row=0.0, rate=1.0, others=63)).k == 0
