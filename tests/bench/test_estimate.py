"""Which arms are measured next, and how sure their figures are."""

from fakes.bench_estimate import HERE, arm, estimate
from specdec_cli.bench.estimate import in_trial_order, next_arms
from specdec_cli.bench.result import Condition, Contender


def test_auto_and_k_over_the_whole_range_are_tried_first_and_contenders_in_turns():
    assert [one.k for one in in_trial_order([HERE], 0.0, (*range(9), "auto"))] == ["auto", 2, 4, 1, 3, 6, 8, 5, 7]
    assert [one.k for one in in_trial_order([HERE], 0.0, (9, 5, 0))] == [9, 5], "as typed, where none is usual"
    lookup = Condition(Contender("ngram"), 0.0)
    both = in_trial_order([HERE, lookup, Condition(HERE.contender, 1.0)], 0.0, (2, "auto"))
    assert both == [arm("auto"), arm("auto", lookup.contender), arm(2), arm(2, lookup.contender)]


def test_the_best_comes_first_and_a_beaten_arm_makes_room_for_the_one_nearest_the_leader():
    near = estimate(2, [0.38, 0.43, 0.40, 0.41])
    leader, beaten = estimate(4, [0.40, 0.41, 0.39, 0.43]), estimate("auto", [0.30, 0.31, 0.29, 0.32])
    assert next_arms([beaten, near, leader], [arm(1), arm(8), arm(3)]) == [arm(4), arm(2), arm(3), arm(1), arm(8)]


def test_an_arm_is_dropped_on_four_prompts_and_never_on_three():
    leader, slow = [0.40, 0.41, 0.39, 0.43], [-0.30, -0.31, -0.29, -0.32]
    assert next_arms([estimate(4, leader[:3]), estimate(2, slow[:3])], []) == [arm(4), arm(2)]
    assert next_arms([estimate(4, leader), estimate(2, slow)], []) == [arm(4)]


def test_what_loses_to_plain_decoding_is_dropped_although_it_leads():
    assert next_arms([estimate(4, [-0.30, -0.31, -0.29, -0.32])], []) == []


def test_the_interval_of_the_best_of_nine_is_wider_than_that_of_one():
    """At one degree of certainty for all: 0.56 % below instead of 2.5 %, t(5) = 3.93 instead of 2.57."""
    one = estimate(2, [0.3, 0.4, 0.2, 0.5, 0.1, 0.3])
    assert one.interval_among(1) == one.interval_among(2) == one.interval
    assert round(one.interval_among(9).half_width / one.interval.half_width, 2) == 1.53
