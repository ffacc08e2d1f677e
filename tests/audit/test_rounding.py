"""What counts as rounding: limits, bounds and faults, from changes made up here."""

from __future__ import annotations

import math
import random

import pytest

from specdec_cli.audit.change import Change, SeveralRows
from specdec_cli.audit.rounding import Bounds, Noise, Rounding

NOISE = Noise(0.05, 0.2)


def readings(rows, size, positions=64, seed=0):
    """Every reading of `positions` by every row; `size(reading, row)` -> a change."""
    draw = random.Random(seed)
    return SeveralRows(
        rows,
        [
            Change("code", reading, position, row, size(draw, reading, row))
            for reading in ("whole", "repeated", "rejected")
            for position in range(positions)
            for row in range(rows)
        ],
    )


def gauss(spread):
    return lambda draw, reading, row: draw.gauss(0.0, spread)


def measured(*passes, noise=NOISE, given=None, precision="bfloat16"):
    return Rounding(precision, 64, 20.0, noise, passes, given)


def test_the_limit_of_a_near_tie_is_the_largest_change_of_any_number_of_rows():
    rounding = measured(readings(2, gauss(0.03)), readings(5, gauss(0.07)))
    assert rounding.limit() == rounding.measured == abs(rounding.passes[1].all.largest.logits)
    assert rounding.limit(0.5) == 2 * rounding.limit() and rounding.limit(1.0) == rounding.limit()
    assert not rounding.faults and "the largest change that rounding made here" in str(rounding)


def test_where_nothing_changes_a_small_floor_is_left():
    rounding = measured(readings(5, gauss(0.0)))
    assert (rounding.limit(), rounding.measured, rounding.faults) == (1e-3, 0.0, [])
    assert str(rounding) == "a gap of at most 0.001 (÷ temperature where coupled)"


def test_bounds_are_multiples_of_the_float32_noise_whatever_the_logits():
    assert Bounds.of("bfloat16", NOISE, 30.0) == Bounds(0.5, pytest.approx(3 * 0.05), pytest.approx(1.5 * 0.05))
    assert Bounds.of("bfloat16", NOISE, 60.0) == Bounds.of("bfloat16", NOISE, 30.0)
    # A float32 reading that is off by more than four epsilons of the largest logit is not believed.
    assert Bounds.of("bfloat16", Noise(9.0, 20.0), 32.0).rms == 3 * 4 * 2.0**-7 * 32


def test_without_a_wider_type_four_epsilons_of_the_largest_logit_bound_a_change():
    assert Bounds.of("float32", None, 30.0).peak == 1e-3
    assert Bounds.of("TF32", None, 32.0).peak == 4 * 2.0**-10 * 32


@pytest.mark.parametrize("seed", range(20))
def test_kernels_that_round_twice_as_much_are_no_fault(seed):
    """20 × 960 normal changes at 2.2 × the noise. A false alarm needs one at 4.5 deviations: odds 0.13 in all, and 1e-4
    for a group of 192 with a root mean square 5 deviations off. The seeds are fixed."""
    assert measured(readings(5, gauss(0.11), seed=seed)).faults == []


def test_an_error_of_half_a_logit_in_every_row_is_a_fault_with_place_and_bounds():
    rounding = measured(readings(5, lambda draw, reading, row: draw.gauss(-0.5, 0.05)))
    (fault,) = rounding.faults
    assert fault.group.name == "every row" and abs(fault.group.mean) > fault.bounds.mean
    assert str(fault).startswith("passes of 5 rows, every row: a gap changes by 0.")
    assert str(fault).endswith("rounding explains at most 0.5, 0.15 and 0.075")


def test_an_error_in_one_row_names_the_row():
    wrong = readings(5, lambda draw, reading, row: draw.gauss(0.0, 0.05) - 0.5 * (row == 3))
    assert [fault.group.name for fault in measured(wrong).faults] == ["row 4"]


def test_an_error_after_rollbacks_smaller_than_the_noise_of_float32_is_a_fault():
    """Passes without a rollback have the same kernels, and do not show it."""
    leaky = readings(5, lambda draw, reading, row: 0.0 if reading == "whole" else draw.gauss(0.0, 0.06))
    (fault,) = measured(leaky).faults
    assert fault.group.name == "after every rollback" and fault.bounds.rms < 0.06
    wrong = readings(5, lambda draw, reading, row: draw.gauss(0.0, 0.06) if reading == "rejected" else 0.0)
    assert measured(wrong).faults[0].group.name == "after rolling back wrong drafts"
    # Negative control: the same changes everywhere are what these kernels do.
    assert measured(readings(5, gauss(0.06))).faults == []


def test_one_change_above_the_bound_is_a_fault():
    passes = readings(5, gauss(0.02))
    peak = Change("prose", "whole", 6, 2, 0.55)
    (fault,) = measured(SeveralRows(5, [*passes.changes, peak])).faults
    assert (fault.group.name, fault.group.largest) == ("here and there", peak)
    assert "(prose, token 7, row 3)" in str(fault)


def test_no_number_at_all_is_a_fault():
    passes = SeveralRows(5, [*readings(5, gauss(0.02)).changes, Change("code", "whole", 0, 0, math.inf)])
    assert measured(passes).faults


def test_few_changes_are_no_evidence_of_what_is_always_there():
    few = readings(2, lambda draw, reading, row: -0.3, positions=4)
    assert measured(few).faults == []
    assert measured(readings(2, lambda draw, reading, row: -0.3, positions=64)).faults


def test_what_a_fault_changes_is_no_near_tie():
    faulty = readings(5, lambda draw, reading, row: -0.5)
    rounding = measured(readings(2, gauss(0.02)), faulty)
    assert rounding.measured == 0.5 and rounding.limit() < 0.1


def test_a_limit_given_by_the_user_moves_near_ties_alone():
    rounding = measured(readings(5, gauss(0.03)), given=0.6)
    assert rounding.limit() == rounding.limit(0.5) == 0.6 and rounding.faults == []
    assert str(rounding) == "a gap of at most 0.6 (--gap)"
    assert measured(readings(5, gauss(0.03)), given=0.0).faults == []
    assert measured(readings(5, lambda draw, reading, row: -0.5), given=0.6).faults


def test_json_has_the_measured_changes_the_cap_the_noise_and_the_positions():
    found = measured(readings(5, gauss(0.04))).to_dict()
    assert {"positions", "measured", "limit", "cap", "float32_noise", "passes", "faults"} <= set(found)
    assert (found["cap"], found["float32_noise"], found["positions"]) == (0.5, 0.05, 64)
    assert (found["passes"][0]["rows"], found["passes"][0]["compared"], found["faults"]) == (5, 960, [])
    assert len(found["passes"][0]["rms_by_row"]) == 5
