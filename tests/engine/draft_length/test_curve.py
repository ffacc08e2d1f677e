"""Costs by size: bent shapes, short memories, doubt about single rounds. Values are logarithms."""

from math import log

import pytest

from specdec_cli.engine.draft_length.curve import HALF_LIFE_ROUNDS, SPIKE, TURN_ROUNDS, Curve


def shape(n):
    return 1 + 0.25 * (n - 1)


def curve(**more):
    return Curve(shape, anchor=1, **more)


def seen(found, n, cost, times=4, now=1):
    for _ in range(times):
        found.add(n, log(cost), now)
    return found


def test_what_was_not_seen_bends_between_the_anchor_and_what_was():
    found = seen(curve(), 5, 2 * shape(5))
    assert found.estimate(1, 0.0, 1) == pytest.approx(0.0)
    assert log(shape(3)) < found.estimate(3, 0.0, 1) < log(2 * shape(3))
    assert found.estimate(3, 0.0, 1) == pytest.approx(log(shape(3)) + log(2) / 2)


def test_a_curious_curve_hopes_beyond_the_largest_seen_and_a_known_one_keeps_its_shape():
    flat = 1.05
    known, curious = seen(curve(curious=False), 4, flat), seen(curve(), 4, flat)
    assert known.estimate(9, 0.0, 1) == pytest.approx(log(shape(9) * flat / shape(4)))
    assert curious.estimate(9, 0.0, 1) < known.estimate(9, 0.0, 1)


def test_what_was_seen_once_is_soon_read_off_its_neighbours_again():
    once, often = seen(curve(), 4, 3.0, times=1), seen(curve(), 4, 3.0, times=4)
    later = 1 + 2 * HALF_LIFE_ROUNDS
    assert once.weight(4, later) == pytest.approx(0.25) and often.weight(4, later) > 3
    assert once.estimate(4, 0.0, 1) <= log(shape(4)) + SPIKE


def test_old_samples_are_forgotten_when_the_last_ones_all_lie_off_to_one_side():
    """A hot machine's plain step kept its old median for seventeen rounds."""
    found = seen(curve(), 1, 1.0, times=20)
    for times in range(TURN_ROUNDS):
        assert found.median(1) == pytest.approx(0.0)
        found.add(1, log(1.3), 1)
        if times < TURN_ROUNDS - 1:
            found.forget_old(1)
    found.forget_old(1)
    assert found.median(1) == pytest.approx(log(1.3)) and found.count(1) == TURN_ROUNDS
    single = seen(curve(), 1, 1.0, times=20)
    single.add(1, log(3.0), 1)
    single.forget_old(1)
    assert single.count(1) == 21


def test_written_down_every_assumed_row_goes_through_what_was_seen():
    """Measured rows were mixed with assumed ones: five rows seemed cheaper than four."""
    found = seen(curve(), 4, 3.0)
    table = found.table(0.0, (2, 4, 8), 1)
    assert table[4] == pytest.approx(3.0, rel=1e-3) and sorted(table.values()) == list(table.values())


def test_sizes_that_are_alike_confirm_each_other_where_each_was_seen_once():
    """Lookups are of any length: nine of them, each of another, taught nothing, and the tenth was as wrong."""
    lone, pair, apart = curve(curious=False), curve(curious=False), curve(curious=False)
    for found, sizes in ((lone, (32,)), (pair, (31, 32)), (apart, (16, 32))):
        for n in sizes:
            seen(found, n, 2 * shape(n), times=1)
    assert lone.estimate(30, 0.0, 1) == apart.estimate(30, 0.0, 1) == pytest.approx(log(shape(30)))
    assert pair.estimate(30, 0.0, 1) == pytest.approx(log(2 * shape(30)), rel=0.02)


def test_of_two_that_are_alike_the_one_nearer_to_the_shape_is_believed():
    found = curve(curious=False)
    seen(found, 32, 9 * shape(32), times=1)
    seen(found, 31, 1.1 * shape(31), times=1)
    assert found.estimate(33, 0.0, 1) == pytest.approx(log(1.1 * shape(33)))
