"""What several rows at once cost on Apple's GPUs until it is measured (pure). Law: one measured round corrects it.

mlx multiplies packed weights with other kernels for other row counts (mlx/backend/metal/quantized.cpp, `dispatch_qmv`
and `get_qmv_batch_limit`):

* M1, M2: one matrix-vector product a row, up to 6, 10 or 14 rows for matrices wider than 4096, 2048 or narrower; then
  tiles of 32 rows, which cost the same for 1 row as for 32.
* M3 and later, and every chip for mxfp4, nvfp4 and mxfp8: the weights are read once for every five rows.
* Experts of a mixture, on every chip: one matrix-vector product a row and expert.

The figures are published measurements of single machines at 4 bits and short contexts (mlx pull requests 3764, 3839,
3852, 3863 and 4265), with what lies between them read off the kernels' steps.
Letters: n rows of a target pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from specdec_cli.core.gain import TYPICAL_ROW_COST, interpolate

# How most of what a step reads is packed: mlx's mode and the bits; None: not at all.
Packing = tuple[str, int] | None
AFFINE = "affine"
# Cost of one more verified row before M3. No row costs are published; these fit the published gains and losses (mlx
# issue 1861, mlx-engine issues 103 and 113). Read once for five rows, four rows took 1 / 1.4 to 1 / 1.7 of the time
# (mlx pull request 3764, M2 Pro).
ROW_COST_BEFORE_M3 = {1: 0.9, 2: 0.55}
SHARED_READ = 1.6
# Rows from which a matrix is multiplied in tiles, where its wider side is up to 2048, up to 4096, and wider.
TILES = {"Ultra": (32, 18, 12), "M5": (33, 25, 13), "M3": (13, 15, 13), "M1": (14, 10, 6), "other": (18, 12, 10)}
TILE_ROWS = 32
# Rows for which the weights are read once.
SHARED_ROWS = 5
# Plain steps of a pass of n rows.
ROWS_SINCE_M3 = {2: 1.1, 3: 1.2, 4: 1.3, 5: 1.45, 6: 1.9, 8: 2.4, 10: 2.8, 11: 3.2, 13: 3.7, TILE_ROWS: 3.9}
ROWS_OF_ULTRA_SINCE_M3 = {4: 1.02, 6: 1.28, 8: 1.57, 18: 2.6, TILE_ROWS: 2.7}
# With OpenBLAS on two cores of an AMD EPYC, passes of Qwen2.5-Coder 1.5B in float32 took 1.15 for two rows, 1.2 to 1.4
# for four and for seven; what is assumed is no less. A line of `TYPICAL_ROW_COST` would keep drafts short for good.
ROWS_OF_BLAS = {2: 1.15, 4: 1.35, 8: 1.6, 16: 2.2}
# Starting a layer's kernels takes time however small the layer (estimated from one published draft step on an M5 Max):
# a share of the target's step for a draft with as many layers.
LAUNCH_SHARE = 0.08
# Cost of one more row where experts are all that is read. They are gathered, which reads the weights once a row and
# expert (quantized.cpp, `gather_qmv`), in every generation; rows that ask for the same expert find it in a cache
# (estimated).
EXPERT_ROW_COST = 0.9
# Rows, and rows times query heads of a key head, up to which attention is one kernel that reads keys and values once a
# row (scaled_dot_product_attention.cpp). More cost the same whatever their number, about as much as so many reads:
# unfused 14 (mlx pull request 1922, M4 Max), in tiles 19 to 22 (mlx issue 3826, M5 Max).
VECTOR_ROWS, MOST_FUSED_QUERIES, READS_BEYOND = 8, 32, 16


@dataclass(frozen=True, slots=True)
class Chip:
    """An Apple GPU: its generation, 1 for M1 and less for what mlx does not know; its tier: "", Pro, Max or Ultra."""

    generation: int
    tier: str

    def tiles_from(self, widest: int) -> int:
        """Rows from which matrices whose wider side is `widest` are multiplied in tiles."""
        generations = {"M5": 5, "M3": 3, "M1": 1}
        name = next((name for name, first in generations.items() if self.generation >= first), "other")
        narrow, middle, wide = TILES["Ultra" if self.tier == "Ultra" else name]
        return narrow if widest <= 2048 else middle if widest <= 4096 else wide

    def shares_reads(self, packing: Packing) -> bool:
        """Whether a product of a few rows reads the weights once for `SHARED_ROWS` of them."""
        return self.generation >= 3 or (packing is not None and packing[0] != AFFINE)

    def rows(
        self,
        widest: int,
        packing: Packing = (AFFINE, 4),
        cache_share: float = 0.0,
        queries_a_key: int = 1,
        expert_share: float = 0.0,
    ) -> Mapping[int, float]:
        """Plain steps of a pass of n rows through matrices whose wider side is `widest`.

        `cache_share`: bytes of the keys and values over those of the weights that a step reads, of which `expert_share`
        are experts'. `queries_a_key`: query heads a key head.
        """
        row = ROW_COST_BEFORE_M3.get(self.generation)
        if row is None:
            table = ROWS_OF_ULTRA_SINCE_M3 if self.tier == "Ultra" else ROWS_SINCE_M3
            # Twice the bytes are read in twice the time, in which as many products again are free.
            flat = 4 / max(packing[1], 4) if packing else 0.25
            found = {n: 1 + (cost - 1) * flat for n, cost in table.items()}
        else:
            if self.shares_reads(packing):
                row = ((1 + 3 * row) / SHARED_READ - 1) / 3
            tiles = self.tiles_from(widest)
            found = {2: 1 + row, tiles: 1 + row * (tiles - 1), TILE_ROWS: 1 + row * (tiles - 1)}
        fused = min(VECTOR_ROWS, MOST_FUSED_QUERIES // queries_a_key)
        table = {1: 1.0, **found}
        costs = {
            n: interpolate(table, n) * (1 - expert_share)
            + (1 + EXPERT_ROW_COST * (n - 1)) * expert_share
            + cache_share * (n if n <= fused else READS_BEYOND)
            for n in sorted({*table, max(fused, 1), fused + 1})
        }
        plain = costs.pop(1)
        return {n: cost / plain for n, cost in costs.items()}


def chip_of(name: str) -> Chip | None:
    """The chip that a device's `name`, such as "Apple M4 Pro", tells of; None for any other device."""
    found = re.search(r"Apple M(\d+)(?: (Pro|Max|Ultra))?\b", name)
    return Chip(int(found[1]), found[2] or "") if found else None


def rows_elsewhere(expert_share: float, shares_reads: bool) -> Mapping[int, float]:
    """Plain steps of a pass of n rows on a device that is not Apple's.

    `expert_share` of what is read are experts. `shares_reads`: a BLAS reads the weights, which are not packed, once for
    all rows.
    """
    table = ROWS_OF_BLAS if shares_reads else {2: 1 + TYPICAL_ROW_COST}
    return {n: cost + (1 + EXPERT_ROW_COST * (n - 1) - cost) * expert_share for n, cost in table.items()}


def draft_step(weight_ratio: float, layer_ratio: float, launches: bool) -> float:
    """A draft step in plain steps: its weights over the target's, and on a device that `launches` kernels, their start.

    `layer_ratio` is the draft's layers over the target's.
    """
    return weight_ratio + LAUNCH_SHARE * layer_ratio * launches
