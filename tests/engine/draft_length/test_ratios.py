"""Costs as ratios: what a file holds is believed only where it could be a machine's."""

from dataclasses import asdict

import pytest

from specdec_cli.engine.draft_length.ratios import Costs, costs_from_dict


def test_a_record_without_a_measured_row_comes_back_too():
    """Python's `min` of a single number: such a record was thrown away, as if it were nonsense."""
    assert costs_from_dict(asdict(Costs())) == Costs()


GOOD = {"verify": {"2": 1.2}, "draft": {"1": 0.1}, "prefill_token": 0.01, "doubt": 0.1}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"draft": {}}, ValueError),
        ({"verify": {"2": -1}}, ValueError),
        ({"draft": {"0": 1}}, ValueError),
        ({"verify": {"x": 1}}, ValueError),
        ({"prefill_token": 0}, ValueError),
        ({"prefill_token": None}, TypeError),
        ({"doubt": 0}, ValueError),
        ({"verify": None}, AttributeError),
    ],
)
def test_nonsense_is_not_taken_for_costs(change, error):
    assert costs_from_dict(GOOD).rows(2) == 1.2
    with pytest.raises(error):
        costs_from_dict(GOOD | change)
    with pytest.raises(KeyError):
        costs_from_dict({})
