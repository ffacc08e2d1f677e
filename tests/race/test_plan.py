"""What both lanes are asked, and which races are refused."""

import pytest

from specdec_cli.errors import UsageError
from specdec_cli.race.race import RacePlan, same_text
from specdec_cli.request import Request


def test_a_greedy_race_is_left_as_it_is():
    request = Request(rule="block")
    assert same_text(request, 0.0) == request


def test_above_temperature_0_a_race_is_coupled_under_a_seed():
    drawn = same_text(Request(), 0.8)
    assert drawn.rule == "coupled" and drawn.seed is not None
    assert same_text(Request(seed=7, rule="coupled"), 0.8).seed == 7


@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_rules_whose_text_depends_on_the_draft_are_refused(rule):
    with pytest.raises(UsageError, match=f"--rule {rule} at temperature 0.8"):
        same_text(Request(rule=rule, seed=1), 0.8)


def test_the_plain_lane_differs_in_nothing_but_the_draft():
    plan = RacePlan(Request(k=4, seed=7, max_tokens=9), [1], "x")
    assert (plan.plain.k, plan.plain.drafter) == (0, "none")
    assert (plan.plain.seed, plan.plain.max_tokens) == (7, 9)
