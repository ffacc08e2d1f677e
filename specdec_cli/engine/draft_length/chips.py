"""What several rows at once cost on Apple's GPUs until it is measured (pure). Law: one measured round corrects it.

mlx multiplies 4-bit weights with other kernels for other row counts (mlx/backend/metal/quantized.cpp, `qmv`, `qmv_wide`
and `qmm`, and the limits in `get_qmv_batch_limit`):

* M1, M2: one matrix-vector product a row, up to 6, 10 or 14 rows for matrices wider than 4096, 2048 or narrower; then
  tiles of 32 rows, which cost the same for 1 row as for 32.
* M3 and later: the weights are read once for every five rows, up to 12 rows; then tiles of 32 rows.

The figures are published measurements of single machines (mlx pull requests 3764, 3839, 3852, 3863 and 4265), with what
lies between them read off the kernels' steps. Other precisions take the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Cost of one more verified row before M3. No row costs are published; these fit the published gains and losses (mlx
# issue 1861, mlx-engine issues 103 and 113).
ROW_COST_BEFORE_M3 = {1: 0.9, 2: 0.55}
# Rows from which a matrix is multiplied in tiles, by its wider side.
TILES_BEFORE_M3 = ((4096, 6), (2048, 10), (0, 14))
TILE_ROWS = 32
# Plain steps of a pass of n rows.
ROWS_SINCE_M3 = {2: 1.1, 3: 1.2, 4: 1.3, 5: 1.45, 6: 1.9, 8: 2.4, 10: 2.8, 11: 3.2, 13: 3.7, TILE_ROWS: 3.9}
ROWS_OF_ULTRA_SINCE_M3 = {4: 1.02, 6: 1.28, 8: 1.57, 18: 2.6, TILE_ROWS: 2.7}
# Starting a layer's kernels takes time however small the layer (estimated from one published draft step on an M5 Max):
# a share of the target's step for a draft with as many layers.
LAUNCH_SHARE = 0.08
# How far (log) these figures may be off.
CHIP_DOUBT = 0.2


@dataclass(frozen=True, slots=True)
class Chip:
    """An Apple GPU: its generation, 1 for M1, and its tier: "", Pro, Max or Ultra."""

    generation: int
    tier: str

    def rows(self, widest: int) -> Mapping[int, float]:
        """Plain steps of a pass of n rows through matrices whose wider side is `widest`."""
        row = ROW_COST_BEFORE_M3.get(self.generation)
        if row is None:
            return ROWS_OF_ULTRA_SINCE_M3 if self.tier == "Ultra" else ROWS_SINCE_M3
        tiles = next(rows for width, rows in TILES_BEFORE_M3 if widest > width or not width)
        return {2: 1 + row, tiles: 1 + row * (tiles - 1), TILE_ROWS: 1 + row * (tiles - 1)}


def chip_of(name: str) -> Chip | None:
    """The chip that a device's `name`, such as "Apple M4 Pro", tells of; None for any other device."""
    found = re.search(r"Apple M(\d+)(?: (Pro|Max|Ultra))?\b", name)
    return Chip(int(found[1]), found[2] or "") if found else None


def draft_step(weight_ratio: float, layer_ratio: float, launches: bool) -> float:
    """A draft step in plain steps: its weights over the target's, and on a device that `launches` kernels, their start.

    `layer_ratio` is the draft's layers over the target's.
    """
    return weight_ratio + LAUNCH_SHARE * layer_ratio * launches
