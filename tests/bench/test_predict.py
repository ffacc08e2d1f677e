"""Predictions by hand: rounds out of a replay, costs in plain steps, and what follows from a run under `block`."""

import random
from math import exp, log

import pytest

from specdec_cli.bench.estimate import Estimate, carried_over, next_arms
from specdec_cli.bench.intervals import t_interval
from specdec_cli.bench.predict import acceptance_by_position, cost_curve, log_speedup, rounds_at, survival, totals
from specdec_cli.bench.recommend import recommend
from specdec_cli.bench.result import Arm, Condition, Contender, CostSample, OfflineAcceptance, PromptId

HERE = Condition(Contender("model", "org/draft"), 0.0)


def offline(accepted, deepest=4, room=None, drafted=None, replayed=True):
    found = tuple(accepted)
    guesses = tuple(drafted or (deepest,) * len(found))
    at, tokens = PromptId("code", "a"), len(found)
    return OfflineAcceptance(HERE, at, tokens, room or tokens, deepest, guesses, found, replayed)


def curve(c=0.1, row=0.25, deepest=8):
    return cost_curve(CostSample(HERE, 100, k, 0.02 * k * c, 0.02 * (1 + k * row), 0.02) for k in range(1, deepest + 1))


def test_rounds_follow_from_what_would_be_accepted_at_each_token():
    """Ten tokens, the first of them plain. At K = 2: 2 of 2 from 1, 0 of 2 from 4, 1 of 2 from 5, 2 of 2 from 7."""
    found = offline([0, 3, 2, 1, 0, 1, 0, 3, 2, 1])
    assert rounds_at(found, 2) == [(2, 2), (2, 0), (2, 1), (2, 2)]
    assert rounds_at(found, 4) == [(4, 3), (4, 1), (2, 2)], (
        "the last round has room for two drafts and the target's token"
    )
    assert rounds_at(found, 1) == [(1, 1), (1, 1), (1, 1), (1, 1), (0, 0)]


def test_a_text_that_ended_early_left_room_for_drafts_behind_its_end():
    assert rounds_at(offline([0, 3, 2, 1], room=128), 4) == [(4, 3)]
    assert rounds_at(offline([0, 3, 2, 1]), 4) == [(2, 2)]


def test_a_drafter_that_has_nothing_to_say_costs_plain_steps():
    found = offline([0, 0, 2, 0, 0, 0], drafted=[0, 0, 3, 0, 0, 0])
    assert rounds_at(found, 4) == [(0, 0), (3, 2), (0, 0)]
    assert totals(found, 4, curve()).seconds == pytest.approx(1 + (0.3 + 1.75) + 1)


def test_a_speedup_is_tokens_over_plain_steps():
    """At K = 2: 9 tokens behind the first in 4 rounds of 0.2 + 1.5 plain steps."""
    found = totals(offline([0, 3, 2, 1, 0, 1, 0, 3, 2, 1]), 2, curve())
    assert (found.rounds, found.emitted, found.drafted, found.accepted, found.rejected) == (4, 9, 8, 5, 2)
    assert found.seconds == pytest.approx(4 * 1.7)
    assert (found.acceptance_rate, found.judged_rate, found.mean_acceptance_length) == (5 / 8, 5 / 7, 9 / 4)
    assert exp(log_speedup(offline([0, 3, 2, 1, 0, 1, 0, 3, 2, 1]), 2, curve())) == pytest.approx(9 / 6.8)


def test_costs_are_medians_of_ratios_so_that_a_slower_machine_changes_nothing():
    steady = [CostSample(HERE, 100, 2, 0.004, 0.030, 0.020)] * 3
    slowed = [CostSample(HERE, 100, 2, 0.008, 0.060, 0.040)] * 3
    spiked = [CostSample(HERE, 100, 2, 0.9, 0.9, 0.020)]
    found = cost_curve([*steady, *slowed, *spiked])
    assert found.draft == {2: 0.2} and found.verify == {3: 1.5} and found.draft_step == pytest.approx(0.1)
    assert cost_curve([]) is None


def test_break_even_is_the_acceptance_that_pays_for_the_round():
    """K = 1 costs 1.35 plain steps: 1 + a = 1.35."""
    assert curve().break_even(1) == pytest.approx(0.35)
    assert curve(c=1.0, row=1.0).break_even(4) is None


def test_a_run_at_the_deepest_k_tells_how_often_each_place_stands():
    run = offline([4, 1, 0, 4, 2], drafted=[4, 4, 4, 4, 4], replayed=False)
    assert survival(run) == [4 / 5, 3 / 5, 2 / 5, 2 / 5]
    assert totals(run, 2, curve()).mean_acceptance_length == pytest.approx(1 + 4 / 5 + 3 / 5)
    assert acceptance_by_position([run], 4) == survival(run)


def test_from_a_run_at_the_deepest_k_a_shallower_one_is_foretold_within_a_few_percent():
    """Where tokens stand with the same odds everywhere, both ways to predict must agree; 4,000 tokens."""
    luck = random.Random(2)
    agrees, runs, behind = [luck.random() < 0.7 for _ in range(4000)], [0] * 4000, 0
    for at in reversed(range(4000)):
        behind = min(behind + 1, 4) if agrees[at] else 0
        runs[at] = behind
    replayed = offline(runs)
    at_deepest = rounds_at(replayed, 4)
    run = offline([a for _, a in at_deepest], drafted=[d for d, _ in at_deepest], replayed=False)
    for k in (1, 2, 3, 4):
        assert log_speedup(run, k, curve()) == pytest.approx(log_speedup(replayed, k, curve()), abs=0.03)


# What to confirm, and what to recommend


def arm(k, contender=HERE.contender):
    return Arm(contender, 0.0, k)


def logs(values):
    return {PromptId("code", str(at)): value for at, value in enumerate(values)}


def estimate(k, predicted, measured=(), contender=HERE.contender):
    made = logs(predicted)
    return Estimate(arm(k, contender), made, logs(measured), relative=made)


def test_the_two_best_predictions_are_confirmed_first():
    found = [estimate(k, [gain] * 6) for k, gain in ((1, 0.2), (2, 0.4), (3, 0.35), (4, 0.1))]
    assert next_arms(found) == [arm(2), arm(3)]


def test_a_beaten_rival_makes_room_for_the_next_one_that_is_near():
    leader = [0.40, 0.41, 0.39, 0.40, 0.42]
    found = [
        estimate(1, [0.37] * 6),
        estimate(2, [0.4] * 6, leader),
        estimate(3, [0.3] * 6, [0.30, 0.31, 0.29, 0.30, 0.32]),
    ]
    assert next_arms(found) == [arm(2), arm(1)]
    assert next_arms([*found[1:], estimate(4, [0.1] * 6)]) == [arm(2)], "nobody else is near"


def test_every_other_contender_has_its_best_arm_confirmed():
    other = Contender("ngram")
    found = [estimate(2, [0.4] * 6), estimate(3, [0.3] * 6), estimate(5, [0.1] * 6, contender=other)]
    assert next_arms(found) == [arm(2), arm(3), arm(5, other)]


def test_ties_go_to_the_smaller_k_but_not_at_any_price():
    five = [0.30, 0.36, 0.33, 0.29, 0.35, 0.31]
    close = [0.31, 0.35, 0.31, 0.30, 0.34, 0.30]
    worse = [0.10, 0.50, 0.15, 0.40, 0.12, 0.44]
    best, near, noisy = estimate(5, five, five), estimate(3, close, close), estimate(2, worse, worse)
    assert recommend(HERE, [near, best]).k == 3 and recommend(HERE, [near, best]).tied == (5,)
    assert best.lead(noisy).low < 0 < best.lead(noisy).mean
    assert recommend(HERE, [noisy, best]).k == 5


def test_an_interval_that_includes_1_says_don_t_whatever_the_mean():
    wild = [0.9, -0.3, 0.5, -0.2, 0.6]
    advice = recommend(HERE, [estimate(3, wild, wild)])
    assert advice.answer == "don't" and advice.speedup.mean > 1.2 and advice.speedup.contains(1.0)


def test_what_was_measured_on_few_prompts_is_carried_over_by_its_predictions():
    """Measured on three easy prompts of six, 0.05 below predictions: the mean of all six predictions, less 0.05."""
    predicted = logs([0.6, 0.6, 0.6, 0.1, 0.1, 0.1])
    found = carried_over(logs([0.55, 0.55, 0.55]), predicted)
    assert found.mean == pytest.approx(0.35 - 0.05) and found.prompts == 3
    assert found.low < found.mean - 0.1, "the spread of the predictions is part of the error"
    assert carried_over(predicted, predicted) == t_interval(list(predicted.values()))
    assert log(found.exp().mean) == pytest.approx(found.mean)
