"""What is assumed of a chip: the kernels' steps, and nothing of devices that are not known."""

import pytest

from specdec_cli.engine.draft_length.chips import LAUNCH_SHARE, TILE_ROWS, Chip, chip_of, draft_step
from specdec_cli.gain import interpolate


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Apple M1", Chip(1, "")),
        ("Apple M4 Pro", Chip(4, "Pro")),
        ("Apple M3 Ultra", Chip(3, "Ultra")),
        ("NVIDIA H200", None),
        ("x86_64", None),
    ],
)
def test_a_chip_is_known_by_the_devices_name(name, chip):
    assert chip_of(name) == chip


@pytest.mark.parametrize(
    ("generation", "tier", "widest"), [(1, "", 1024), (2, "Max", 14336), (3, "Ultra", 4096), (5, "", 4096)]
)
def test_more_rows_never_cost_less_and_a_tile_is_flat(generation, tier, widest):
    table = {1: 1.0, **Chip(generation, tier).rows(widest)}
    costs = [interpolate(table, n) for n in range(1, TILE_ROWS + 1)]
    assert costs == sorted(costs)
    assert costs[TILE_ROWS - 1] <= 1.1 * costs[17]


def test_before_m3_tiles_begin_the_later_the_narrower_the_matrices():
    tiles = [max(n for n in Chip(1, "").rows(widest) if n < TILE_ROWS) for widest in (2048, 4096, 4097)]
    assert tiles == [14, 10, 6]


def test_a_draft_step_costs_its_start_where_kernels_are_launched():
    assert draft_step(0.07, 0.75, launches=False) == pytest.approx(0.07)
    assert draft_step(0.07, 0.75, launches=True) == pytest.approx(0.07 + 0.75 * LAUNCH_SHARE)
