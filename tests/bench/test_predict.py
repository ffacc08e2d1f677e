"""Predictions by hand: rounds out of a replay, costs in plain steps, and what follows from a run under `block`."""

import random
from math import exp

import pytest

from specdec_cli.bench.predict import acceptance_by_position, cost_curve, log_speedup, rounds_at, survival, totals
from specdec_cli.bench.result import Condition, Contender, CostSample, OfflineAcceptance, PromptId

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
