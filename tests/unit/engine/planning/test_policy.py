"""The first round: what is known without a draft may be drafted in it, where the first word hardly waits for that."""

from dataclasses import replace
from itertools import pairwise

import pytest

from specdec_cli.core.kinds import FORCED, PREDICTED
from specdec_cli.engine.planning.policy import Plan, Situation, Spell, plan
from specdec_cli.engine.planning.tuning import FIRST_WAIT, LAST_WAIT

CHEAP, DEAR = ([1 + cost * k for k in range(45)] for cost in (0.05, 0.8))
PREDICTS = Situation(
    16, first=True, source=PREDICTED.name, lookup=(0.8,) * 31, match=8, predicted=2, passes=tuple(CHEAP), doubt=0.1
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


@pytest.mark.parametrize("changed", [{"k": 3}, {"doubt": 0.5}, {"most": 0}], ids=["fixed K", "a cold start", "the end"])
@pytest.mark.parametrize("one", [PREDICTS, FORCES])
def test_a_fixed_k_and_a_cold_start_begin_plainly(one, changed):
    assert plan(replace(one, **changed)) == Plan()


def test_no_network_drafts_in_the_first_round_however_well_it_pays():
    pays = Situation(16, first=True, network="model", rates=(0.95,) * 16, steps=tuple(CHEAP), passes=tuple(CHEAP))
    assert plan(pays) == Plan()
    assert plan(replace(pays, first=False)).k  # control


def test_what_is_forced_is_cut_to_what_the_answer_may_have():
    assert plan(Situation(3, forced=9)) == Plan(FORCED.name, 3)
    assert plan(Situation(9, forced=3)) == Plan(FORCED.name, 3)


def test_the_wait_after_spells_that_did_not_pay_doubles_up_to_its_end():
    waits = [Spell(fails=fails).wait for fails in range(1, 21)]
    assert waits[0] == FIRST_WAIT and waits[-1] == LAST_WAIT == Spell(fails=10**6).wait
    assert all(later in (2 * wait, LAST_WAIT) for wait, later in pairwise(waits))
