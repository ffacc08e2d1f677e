"""Student's t against printed tables."""

from statistics import NormalDist

import pytest

from specdec_cli.student import t_quantile, t_within

# Two-sided, from printed tables of Student's t (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
TABLE = {
    0.90: {1: 6.314, 2: 2.920, 3: 2.353, 5: 2.015, 10: 1.812, 30: 1.697, 100: 1.660},
    0.95: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, 60: 2.000, 100: 1.984},
    0.99: {1: 63.657, 2: 9.925, 3: 5.841, 5: 4.032, 10: 3.169, 30: 2.750, 100: 2.626},
}


@pytest.mark.parametrize("confidence", TABLE)
def test_quantiles_are_the_tabulated_ones(confidence):
    for freedom, value in TABLE[confidence].items():
        assert round(t_quantile(freedom, confidence), 3) == pytest.approx(value, abs=0.00051)


def test_the_distribution_becomes_normal_with_many_degrees_of_freedom():
    for t in (0.5, 1.0, 1.96, 3.0):
        assert t_within(t, 4000) == pytest.approx(2 * NormalDist().cdf(t) - 1, abs=2e-4)
    assert t_within(0.0, 5) == 0.0
