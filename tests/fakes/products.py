"""Cells of a product of parameters for `pytest.mark.parametrize`: a few by default, chosen to meet every value."""

import pytest

QUICK = 6


def spread(*axes, quick=QUICK):
    """One cell for each value of the longest axis, the values of the others taking turns; those after `quick` slow."""
    cells = [tuple(axis[i % len(axis)] for axis in map(list, axes)) for i in range(max(map(len, axes)))]
    return [cell if i < quick else pytest.param(*cell, marks=pytest.mark.slow) for i, cell in enumerate(cells)]


def every(*axes, quick=QUICK):
    """All cells; those that `spread` does not take by default are full."""
    few = [cell for cell in spread(*axes, quick=quick) if isinstance(cell, tuple)]
    cells = [()]
    for axis in axes:
        cells = [(*cell, value) for cell in cells for value in axis]
    return [pytest.param(*cell, marks=() if cell in few else pytest.mark.full) for cell in cells]
