"""The plan of a round: the first one, one that is tried, and one whose pass replies share.

What is known without a draft may be drafted in the first, where the first word hardly waits for that. In a shared pass
all gain and pay together.
"""

from dataclasses import replace

import pytest

from specdec_cli.core.gain import expected_tokens
from specdec_cli.core.kinds import FORCED, LOOKUP, NONE, PREDICTED
from specdec_cli.engine.planning.policy import RELEASE_TOKENS, Plan, Situation, Worth, plan

CHEAP, DEAR = ([1 + cost * k for k in range(45)] for cost in (0.05, 0.8))
PREDICTS = Situation(
    16, first=True, source=PREDICTED.name, lookup=(0.8,) * 31, match=8, predicted=2, passes=tuple(CHEAP), measured=True
)
FORCES = replace(PREDICTS, forced=5, predicted=0)


def test_a_prediction_and_forced_tokens_are_drafted_at_once_where_rows_are_cheap():
    assert plan(PREDICTS) == Plan(PREDICTED.name, 2, "the last 8 tokens occurred before")
    assert plan(FORCES) == Plan(FORCED.name, 5, "the shape forces them")


@pytest.mark.parametrize("one", [PREDICTS, FORCES])
def test_where_the_first_word_would_wait_for_longer_than_is_saved_the_first_round_is_plain(one):
    assert plan(replace(one, passes=tuple(DEAR))) == Plan()


def test_a_long_forced_text_is_cut_where_its_further_rows_cost_more_than_they_save():
    ks = [plan(replace(FORCES, forced=30, most=30, passes=tuple(1 + c * k for k in range(45)))).k for c in (0.01, 0.2)]
    assert ks[0] > ks[1] > 0


def test_a_wrong_prediction_is_not_tried_again_in_the_first_round():
    """What later replies' first rounds are decided by: the rates of matches of this length."""
    assert plan(replace(PREDICTS, lookup=(0.02,) * 31)) == Plan()


@pytest.mark.parametrize(
    "changed", [{"k": 3}, {"measured": False}, {"most": 0}], ids=["fixed K", "a cold start", "the end"]
)
@pytest.mark.parametrize("one", [PREDICTS, FORCES])
def test_a_fixed_k_and_a_cold_start_begin_plainly(one, changed):
    assert plan(replace(one, **changed)) == Plan()


def test_no_network_drafts_in_the_first_round_however_well_it_pays():
    pays = Situation(16, first=True, network="model", deepest=16, rate=0.95, steps=tuple(CHEAP), passes=tuple(CHEAP))
    assert plan(pays) == Plan()
    assert plan(replace(pays, first=False)).k  # control


def test_what_is_forced_is_cut_to_what_the_answer_may_have():
    assert plan(Situation(3, forced=9)) == Plan(FORCED.name, 3)
    assert plan(Situation(9, forced=3)) == Plan(FORCED.name, 3)


TRIES = Situation(
    8, network="model", deepest=8, rate=0.2, judged=True, steps=tuple(1 + 0.4 * k for k in range(9)), left=200
)


def test_where_drafting_does_not_seem_to_pay_it_is_tried_out_of_the_credit_alone():
    assert plan(TRIES).k and plan(TRIES).reason == "trying whether drafting pays"
    spent = plan(replace(TRIES, credit=-2.0))
    assert (spent.k, spent.reason) == (0, "drafting does not pay: 20 % of judged tokens would be accepted")
    assert not plan(replace(TRIES, left=4)).k  # what is left could not pay for it


@pytest.mark.parametrize(("credit", "left", "drafts"), [(0.0, 500, True), (0.0, 40, False), (-8.0, 500, False)])
def test_reading_is_paid_for_beyond_the_credit_only_where_twice_that_may_be_saved(credit, left, drafts):
    """Else a draft that is dear to read for would never be tried again after poor texts."""
    reading = replace(TRIES, reading=8.0, unread=200, credit=credit, left=left, emitted=200)
    assert bool(plan(reading).k) == drafts


def test_what_paid_is_not_drafted_where_reading_costs_what_a_short_answer_saves():
    pays = replace(TRIES, rate=0.9, reading=9.0, unread=300)
    assert plan(pays).k and not plan(replace(pays, left=20)).k
    assert plan(pays).reason.startswith("expected: ")
    assert plan(replace(pays, left=20)).reason.startswith("short answer: the draft would read 300 tokens")


def test_a_draft_that_rests_for_long_gives_its_memory_back():
    rests = replace(TRIES, credit=-8.0)
    assert [plan(replace(rests, idle=idle)).release for idle in (0, RELEASE_TOKENS - 1, RELEASE_TOKENS)] == [0, 0, 1]


# Shared passes


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


def test_replies_that_would_gain_only_together_begin_together():
    """Each told nothing yet: who drafts alone pays for the rows of all. They begin by what each tells, and agree."""
    first = drafting(row=0.1, others=3)
    alone = plan(replace(first, others=(Worth(),) * 3))
    assert alone.k == 0
    assert plan(replace(first, others=(alone.worth,) * 3)).k == plan(first).k > 0
    for hopeless in ({"rate": 0.1}, {"row": 0.9}, {"unread": 3000, "reading": 60.0, "left": 20}):
        assert plan(replace(drafting(**{"row": 0.1} | hopeless), others=(Worth(),) * 3)).worth == Worth()


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
