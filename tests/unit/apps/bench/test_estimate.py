"""What is known of each arm, which come next, which K is recommended, and how sure that is."""

from __future__ import annotations

import random

import pytest

from fakes.bench import HERE, estimate
from specdec_cli.apps.bench.estimate import better, in_trial_order, next_arms, recommend
from specdec_cli.apps.bench.result import Condition, Contender
from specdec_cli.core.speedup import t_quantile
from specdec_cli.measure.intervals import interval_over
from specdec_cli.measure.prompts import PromptId


def over(groups):
    """The interval over prompts of these kinds."""
    return interval_over({PromptId(kind, str(at)): v for kind, values in groups.items() for at, v in enumerate(values)})


def test_auto_and_k_over_the_whole_range_are_tried_first_and_contenders_in_turns():
    assert [one.k for one in in_trial_order([HERE], (*range(9), "auto"))] == ["auto", 2, 4, 1, 3, 6, 8, 5, 7]
    assert [one.k for one in in_trial_order([HERE], (9, 5, 0))] == [9, 5], "as typed, where none is usual"
    lookup = Condition(Contender("ngram"), 0.0)
    both = in_trial_order([HERE, lookup], (2, "auto"))
    assert both == [HERE.arm("auto"), lookup.arm("auto"), HERE.arm(2), lookup.arm(2)]


def test_the_best_comes_first_and_a_beaten_arm_makes_room_for_the_one_nearest_the_leader():
    near = estimate(2, [0.38, 0.43, 0.40, 0.41])
    leader, beaten = estimate(4, [0.40, 0.41, 0.39, 0.43]), estimate("auto", [0.30, 0.31, 0.29, 0.32])
    found = next_arms([beaten, near, leader], [HERE.arm(1), HERE.arm(8), HERE.arm(3)])
    assert [one.k for one in found] == [4, 2, 3, 1, 8]


def test_an_arm_is_dropped_on_four_prompts_and_never_on_three():
    leader, slow = [0.40, 0.41, 0.39, 0.43], [-0.30, -0.31, -0.29, -0.32]
    assert next_arms([estimate(4, leader[:3]), estimate(2, slow[:3])], []) == [HERE.arm(4), HERE.arm(2)]
    assert next_arms([estimate(4, leader), estimate(2, slow)], []) == [HERE.arm(4)]


def test_what_loses_to_plain_decoding_is_dropped_although_it_leads():
    assert next_arms([estimate(4, [-0.30, -0.31, -0.29, -0.32])], []) == []


def test_kinds_weigh_the_same_and_their_differences_are_no_error():
    """Two kinds far apart, each steady: the interval is narrow, and the larger kind does not pull the mean."""
    values = {"code": [1.0, 1.02, 0.98, 1.0, 1.0, 1.0], "chat": [2.0, 2.02]}
    found = over(values)
    assert found.mean == pytest.approx((1.0 + 2.01) / 2)
    assert found.half_width < 0.03 < over({"all": [v for group in values.values() for v in group]}).half_width


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(8,), (5, 4, 4)])
def test_intervals_cover_the_mean_as_often_as_they_say(sizes):
    """6,000 normal draws: 95 % ± 0.9 % is 3.2 standard errors, two false alarms in 1,000. A z-interval fails."""
    luck, truth, hits, normal = random.Random(1), 0.3, 0, 0
    for _ in range(6000):
        groups = {
            str(at): [truth + at - (len(sizes) - 1) / 2 + luck.gauss(0, 0.2) for _ in range(n)]
            for at, n in enumerate(sizes)
        }
        found = over(groups)
        hits += found.low <= truth <= found.high
        narrow = found.half_width * 1.96 / t_quantile(sum(sizes) - len(sizes))
        normal += abs(found.mean - truth) <= narrow
    assert abs(hits / 6000 - 0.95) < 0.009
    assert normal / 6000 < 0.94


WILD = [0.9, -0.3, 0.5, -0.2, 0.6]


def test_ties_go_to_the_smaller_k_but_not_at_any_price():
    five = [0.30, 0.36, 0.33, 0.29, 0.35, 0.31]
    close = [0.31, 0.35, 0.31, 0.30, 0.34, 0.30]
    worse = [0.10, 0.50, 0.15, 0.40, 0.12, 0.44]
    best, near, noisy = estimate(5, five), estimate(3, close), estimate(2, worse)
    assert recommend(HERE, [near, best]).k == 3 and recommend(HERE, [near, best]).tied == (5,)
    assert best.lead(noisy).low < 0 < best.lead(noisy).mean
    assert recommend(HERE, [noisy, best]).k == 5


def test_an_interval_that_includes_1_is_never_called_faster_whatever_the_mean():
    advice = recommend(HERE, [estimate(3, WILD)])
    assert (advice.answer, advice.chosen) == ("don't", 0)
    assert advice.k == 3 and advice.speedup.mean > 1.2 and advice.speedup.low < 1 < advice.speedup.high


def test_a_k_that_only_its_own_interval_calls_faster_is_not_called_so_among_nine():
    """One of nine arms leads by luck more often than one alone."""
    lucky = estimate(3, [0.30, 0.01, 0.20, 0.08, 0.16])
    others = [estimate(k, [0.05, -0.05, 0.02, -0.02, 0.0]) for k in (1, 2, 4, 5, 6, 7, 8, 9)]
    assert recommend(HERE, [lucky]).answer == "use"
    assert recommend(HERE, [lucky, *others]).answer == "don't"


def test_auto_is_the_safest_where_nothing_is_proven_and_it_is_no_loss():
    advice = recommend(HERE, [estimate(3, WILD), estimate("auto", [0.1, -0.1, 0.05])])
    assert (advice.answer, advice.chosen, advice.k) == ("safest", "auto", "auto")
    lost = recommend(HERE, [estimate(3, WILD), estimate("auto", [0.1, -0.1, -0.05])])
    assert (lost.answer, lost.chosen, lost.k) == ("don't", 0, 3)


def test_too_few_prompts_for_an_interval_leave_auto():
    advice = recommend(HERE, [estimate(3, WILD[:2])])
    assert (advice.answer, advice.chosen, advice.speedup) == ("unknown", "auto", None)


def test_of_two_drafts_the_one_that_is_faster_beyond_noise_is_better_than_one_that_is_safe():
    safe, fast = [estimate("auto", WILD)], [estimate(2, [0.3, 0.31, 0.29])]
    found = [(recommend(HERE, one), one) for one in (safe, fast)]
    assert better(found) is found[1][0] and better(found[:1]) is found[0][0]
