"""The page's figures: predictions by the formula, costs between measured rows."""

import pytest

from specdec_cli.gain import tokens_per_round
from specdec_cli.ui.bench.page_data import CostTable, cost_table, predicted_speedup

COSTS = CostTable(0.1, (1.0, 1.05, 1.2, 1.6, 2.2), 0.02)


def test_the_prediction_is_the_formula_of_the_design():
    """S(3) at a = 0.8: (1 + 0.8 + 0.64 + 0.512) / (0.3 + 1.6)."""
    assert tokens_per_round(0.8, 3) == pytest.approx(2.952)
    assert predicted_speedup(0.8, 3, COSTS) == pytest.approx(2.952 / 1.9)
    assert predicted_speedup(0.8, 0, COSTS) == 1.0


def test_rows_that_were_not_measured_lie_between_their_neighbours():
    class Curve:
        draft_step, plain_seconds, verify = 0.1, 0.02, {3: 1.4, 5: 2.0}

    assert cost_table(Curve()).verify == pytest.approx((1.0, 1.2, 1.4, 1.7, 2.0))
    assert cost_table(None) is None
