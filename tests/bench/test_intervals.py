"""Intervals against tabulated values and by simulation."""

import random
from math import log

import pytest

from specdec_cli.bench.estimate import by_kind, grouped
from specdec_cli.meter import t_quantile


def test_kinds_weigh_the_same_and_their_differences_are_no_error():
    """Two kinds far apart, each steady: the interval is narrow, and the larger kind does not pull the mean."""
    values = {"code": [1.0, 1.02, 0.98, 1.0, 1.0, 1.0], "chat": [2.0, 2.02]}
    found = by_kind(values)
    assert found.mean == pytest.approx((1.0 + 2.01) / 2)
    assert found.half_width < 0.03 < by_kind({"all": [v for group in values.values() for v in group]}).half_width


def test_a_kind_of_one_prompt_makes_all_prompts_one_group():
    assert by_kind({"code": [1.0, 1.2], "chat": [2.0]}) == by_kind({"all": [1.0, 1.2, 2.0]})


@pytest.mark.parametrize("sizes", [(8,), (2, 2, 2, 2, 2, 2, 2), (5, 4, 4), (3, 9)])
def test_intervals_cover_the_mean_as_often_as_they_say(sizes):
    """6,000 normal draws: 95 % ± 0.9 % is 3.2 standard errors, two false alarms in 1,000. A z-interval fails."""
    luck, truth, hits, normal = random.Random(1), 0.3, 0, 0
    for _ in range(6000):
        groups = {
            str(at): [truth + at - (len(sizes) - 1) / 2 + luck.gauss(0, 0.2) for _ in range(n)]
            for at, n in enumerate(sizes)
        }
        found = by_kind(groups)
        hits += found.contains(truth)
        narrow = found.half_width * 1.96 / t_quantile(sum(sizes) - len(sizes))
        normal += abs(found.mean - truth) <= narrow
    assert abs(hits / 6000 - 0.95) < 0.009
    assert normal / 6000 < 0.94


def test_ratios_are_averaged_as_logarithms():
    found = by_kind({"all": [log(2.0), -log(2.0)]}).exp()
    assert found.mean == pytest.approx(1.0)
    assert log(found.high) == pytest.approx(-log(found.low))


def test_grouping_keeps_order_and_kinds():
    assert grouped([("a", 1.0), ("b", 2.0), ("a", 3.0)]) == {"a": [1.0, 3.0], "b": [2.0]}
