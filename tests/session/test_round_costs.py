"""Costs of rounds are kept with their doubt, and nonsense is not believed."""

from math import log

import pytest

from specdec_cli.session.round_costs import BELIEVED_SECONDS, Doubted, costs_from_dict, costs_to_dict


def test_a_cost_that_contradicts_what_was_known_is_believed():
    """A hot machine verifies five rows slower, and one row as before."""
    known = Doubted(log(1.5), 0.001)
    found = Doubted(log(3.0), 0.001).joined(known)
    assert found.log > log(2.8) and found.variance < 0.0011


def test_costs_survive_the_trip_through_the_file_with_more_doubt_and_not_for_ever():
    costs = {("model", 4): Doubted(0.5, 0.01), ("ngram", 8): Doubted(0.9, 0.2)}
    kept = costs_to_dict(costs, 1000.0)
    found = costs_from_dict(kept, 2000.0)
    assert {kind: cost.log for kind, cost in found.items()} == {kind: cost.log for kind, cost in costs.items()}
    assert all(found[kind].variance > costs[kind].variance for kind in costs)
    assert costs_from_dict(kept, 1001.0 + BELIEVED_SECONDS) == costs_from_dict(kept, 999.0) == {}


@pytest.mark.parametrize(
    "values",
    [
        [],
        {"at": 1.0},
        {"at": "x", "costs": {}},
        {"at": 1.0, "costs": {"model 4": [float("nan"), 0.1]}},
        {"at": 1.0, "costs": {"model 4": [0.5, -1]}},
        {"at": 1.0, "costs": {"model": [0.5, 1]}},
        {"at": 1.0, "costs": {"model 4": [900.0, 1]}},
        {"at": 1.0, "costs": {"model 4": 3}},
    ],
)
def test_nonsense_in_the_file_is_not_believed(values):
    assert costs_from_dict(values, 2.0) == {}
