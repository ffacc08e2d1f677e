"""How rounds scatter around their neighbours."""

import random
from math import sqrt

import pytest

from specdec_cli.session.scatter import LEAST_SPREAD, Scatter


def test_rounds_that_scatter_alone_show_their_own_spread_and_that_of_their_neighbours():
    luck = random.Random(1)
    scatter = Scatter([luck.gauss(1, 0.1) for _ in range(2000)])
    assert scatter.noise == pytest.approx(0.1 * sqrt(1 + 1 / 16), rel=0.05)
    assert scatter.placebo(4).spread == pytest.approx(0.1 * sqrt(1 / 4 + 1 / 16), rel=0.05)
    assert scatter.placebo(1, ended=True).spread == pytest.approx(0.1 * sqrt(1 + 1 / 8), rel=0.05)


def test_a_slow_change_of_speed_is_no_noise():
    assert Scatter([1 + at / 100 for at in range(200)]).noise == LEAST_SPREAD


def test_where_the_speed_switches_the_nearer_neighbours_are_taken():
    scatter = Scatter(([1.0] * 10 + [2.0] * 10) * 20)
    assert scatter.placebo(1).beside == 3


def test_few_rounds_show_nothing():
    assert Scatter([1.0, 1.0, 1.0]).noise == 1.0
