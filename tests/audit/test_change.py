"""Changes of a lead, and what groups of them have in common."""

from __future__ import annotations

import json
import math

import pytest

from specdec_cli.audit.change import Change, Group, SeveralRows, difference, root_mean_square


def test_what_is_no_number_differs_infinitely_and_equal_infinities_do_not_differ():
    assert difference(1.5, 1.0) == 0.5
    assert difference(math.inf, math.inf) == 0.0
    assert difference(math.nan, 1.0) == difference(1.0, math.nan) == difference(math.inf, 1.0) == math.inf


def test_the_root_mean_square_of_nothing_is_0():
    assert root_mean_square([]) == 0.0 and root_mean_square([3.0, 4.0, 0.0, 0.0]) == 2.5


def test_a_group_knows_its_largest_change_of_either_sign_and_its_mean():
    group = Group("g", [Change("a", "whole", 0, 0, 0.25), Change("b", "whole", 7, 1, -0.5)])
    assert (group.largest.prompt, group.mean, group.rms) == ("b", -0.125, pytest.approx(0.3953, abs=1e-4))
    assert str(group.largest) == "b, token 8, row 2"


def test_changes_are_grouped_by_row_and_by_reading():
    passes = SeveralRows(2, [Change("a", "whole", 0, 0, 0.1), Change("a", "repeated", 1, 1, 0.3)])
    assert [(group.name, group.rms) for group in passes.by_row] == [("row 1", 0.1), ("row 2", 0.3)]
    assert {name: group.name for name, group in passes.by_reading.items()} == {
        "whole": "without a rollback",
        "repeated": "after rolling back right drafts",
    }


def test_an_infinite_change_is_null_in_json():
    found = SeveralRows(1, [Change("a", "whole", 0, 0, math.inf)]).to_dict()
    assert (found["largest"], found["rms"], found["rms_by_row"]) == (None, None, [None])
    json.dumps(found, allow_nan=False)
