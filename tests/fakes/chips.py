"""Machines of Apple's generations for simulations, and disturbances. (pure, seeded)

Published figures of single machines where there are any (`measured`), else what the kernels' steps suggest: such a
curve is an estimate, and is played at half and at twice its cost of further rows too. They are written down apart from
what `specdec_cli.engine.planning.chips` assumes, and differ from it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import exp

from fakes.machine import Machine
from specdec_cli.engine.planning import chips
from specdec_cli.engine.planning.costs import Costs

WIDEST = 14336
# (name of the device, rows -> plain steps, measured)
CURVES = (
    ("Apple M1", {2: 1.9, 3: 2.8, 4: 3.7, 5: 4.6, 6: 5.0, 32: 5.2}, False),
    ("Apple M2 Pro", {2: 1.55, 4: 2.7, 6: 3.6, 32: 3.8}, False),
    ("Apple M2 Ultra", {2: 1.55, 4: 2.7, 8: 5.2, 12: 5.3, 32: 5.4}, False),
    ("Apple M3 Max", {2: 1.02, 4: 1.28, 5: 1.45, 6: 2.0, 8: 2.5, 9: 3.1, 13: 3.9, 32: 4.0}, True),
    ("Apple M3 Ultra", {4: 1.02, 6: 1.28, 8: 1.57, 18: 2.6, 32: 2.7}, True),
    ("Apple M4", {2: 1.1, 4: 1.5, 5: 1.7, 6: 2.2, 8: 2.7, 13: 3.9, 32: 4.0}, False),
    ("Apple M4 Pro", {2: 1.02, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84, 13: 3.9, 32: 4.0}, True),
    ("Apple M5 Max", {2: 1.1, 4: 1.29, 5: 1.5, 8: 2.46, 13: 3.6, 32: 3.7}, True),
    # Four rows went from 37 to 50 ms in three runs, one row stayed (mlxcel issue 1182).
    ("Apple M5 Max, hot", {2: 1.2, 4: 1.62, 5: 2.0, 8: 3.3, 13: 4.5, 32: 4.7}, True),
)
# Plain steps of a draft step; the middle one is assumed, the others are half and twice as dear.
DRAFT_STEPS = (0.075, 0.15, 0.3)


@dataclass(frozen=True, eq=False)
class Case:
    """A machine, and the costs that the product would assume of it."""

    machine: Machine
    assumed: Costs


def case(name: str, rows: dict[int, float], draft_step: float) -> Case:
    chip = chips.chip_of(name)
    assumed = Costs(chip.rows(WIDEST), {1: DRAFT_STEPS[1]}, DRAFT_STEPS[1] / 8)
    return Case(Machine(f"{name}, draft {draft_step}", draft_step, rows, spikes=0.0), assumed)


def steeper(rows: dict[int, float], factor: float) -> dict[int, float]:
    """The same curve with further rows at `factor` of their cost."""
    return {n: 1 + (cost - 1) * factor for n, cost in rows.items()}


def cases() -> list[Case]:
    """Every curve with every draft; estimated ones at half and twice their cost of rows too, with the middle draft."""
    found = [case(name, rows, step) for name, rows, _ in CURVES for step in DRAFT_STEPS]
    for name, rows, measured in CURVES:
        if not measured:
            for factor in (0.5, 2.0):
                one = case(name, steeper(rows, factor), DRAFT_STEPS[1])
                found.append(replace(one, machine=replace(one.machine, name=f"{name}, rows × {factor:g}")))
    return found


# What all passes of a round take longer, by the round's number, the reply's clock and luck.
def calm(index: int, seconds: float, luck: random.Random) -> float:
    return 1.0


def outliers(index: int, seconds: float, luck: random.Random) -> float:
    """One round in ten takes three times as long."""
    return 3.0 if luck.random() < 0.1 else 1.0


def cold_start(index: int, seconds: float, luck: random.Random) -> float:
    """The first three rounds of a reply take twice as long."""
    return 2.0 if index < 3 else 1.0


def busy(index: int, seconds: float, luck: random.Random) -> float:
    """Two seconds at half speed."""
    return 2.0 if 0.5 <= seconds < 2.5 else 1.0


def restless(index: int, seconds: float, luck: random.Random) -> float:
    """Other programs come and go: log-normal noise of 20 % on every round."""
    return exp(luck.gauss(0, 0.2))
