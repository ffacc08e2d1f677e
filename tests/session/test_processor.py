"""Where this process's computing can be counted, other programs are in no cost, and only in how sure the figure is."""

import random

from specdec_cli.events import Round
from specdec_cli.session.comparison import Comparison

COST, STEP, TOKENS = 1.5, 0.02, 3
ROUNDS = 64


def drafted(index, seconds):
    return Round(index, "model", (1,) * 4, 2, 1, (1,) * TOKENS, 0.0, seconds)


def compared(counted, stolen):
    """The gain of a reply that other programs lengthen by `stolen`, costs compared by computing or by the clock."""
    luck, comparison = random.Random(3), Comparison()
    comparison.begin(drafted(0, STEP))
    for index in range(1, ROUNDS + 1):
        quiet = COST * STEP * luck.uniform(0.99, 1.01)
        comparison.fold(drafted(index, quiet * stolen(index)), quiet if counted else None)
        if index % 20 == 0:
            comparison.measured([STEP * (1.0 if counted else stolen(index + 2))])
    return comparison.gain()


def bursts(index):
    """Every other program runs for a few rounds and rests for as long."""
    return 2.0 if index // 5 % 2 else 1.0


def test_a_burst_of_another_program_moves_no_cost_that_is_counted_by_computing():
    assert abs(compared(True, bursts).speedup / (TOKENS / COST) - 1) < 0.02
    assert abs(compared(False, bursts).speedup / (TOKENS / COST) - 1) > 0.1


def test_the_interval_still_holds_the_luck_of_a_busy_machine():
    quiet, busy = compared(True, lambda index: 1.0), compared(True, bursts)
    assert busy.high / busy.low > 1.3
    assert quiet.high / quiet.low < 1.1
