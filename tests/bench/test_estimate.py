"""Which arms are measured next, and what their measurements say of the other prompts."""

from math import log

import pytest

from fakes.bench_estimate import arm, estimate, logs
from specdec_cli.bench.estimate import carried_over, next_arms
from specdec_cli.bench.intervals import t_interval
from specdec_cli.bench.result import Contender


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


def test_what_was_measured_on_few_prompts_is_carried_over_by_its_predictions():
    """Measured on three easy prompts of six, 0.05 below predictions: the mean of all six predictions, less 0.05."""
    predicted = logs([0.6, 0.6, 0.6, 0.1, 0.1, 0.1])
    found = carried_over(logs([0.55, 0.55, 0.55]), predicted)
    assert found.mean == pytest.approx(0.35 - 0.05) and found.prompts == 3
    assert found.low < found.mean - 0.1, "the spread of the predictions is part of the error"
    assert carried_over(predicted, predicted) == t_interval(list(predicted.values()))
    assert log(found.exp().mean) == pytest.approx(found.mean)
