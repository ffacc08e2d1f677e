"""What is assumed of a chip: the kernels' steps, and nothing of devices that are not known."""

import pytest

from specdec_cli.core.gain import interpolate
from specdec_cli.engine.planning.chips import EXPERT_ROW_COST, LAUNCH_SHARE, TILE_ROWS, Chip, chip_of, draft_step


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


@pytest.mark.parametrize(("cache_share", "queries"), [(0.0, 1), (0.5, 1), (0.5, 5), (0.5, 64)])
@pytest.mark.parametrize(
    ("generation", "tier", "widest"), [(1, "", 1024), (2, "Max", 14336), (3, "Ultra", 4096), (5, "", 4096)]
)
def test_more_rows_never_cost_less_and_a_tile_is_flat(generation, tier, widest, cache_share, queries):
    table = {1: 1.0, **Chip(generation, tier).rows(widest, cache_share=cache_share, queries_a_key=queries)}
    costs = [interpolate(table, n) for n in range(1, TILE_ROWS + 1)]
    assert costs == sorted(costs)
    assert costs[TILE_ROWS - 1] <= 1.1 * costs[17]


def test_before_m3_tiles_begin_the_later_the_narrower_the_matrices():
    tiles = [Chip(1, "").tiles_from(widest) for widest in (2048, 4096, 4097)]
    assert tiles == [14, 10, 6]


@pytest.mark.parametrize(
    ("name", "packing", "least", "most"),
    [
        # nvfp4 and mxfp8 at 4 rows took 1 / 1.4 to 1 / 1.7 of 4-bit's time on an M2 Pro.
        ("Apple M2 Pro", ("nvfp4", 4), 2.65 / 1.7, 2.65 / 1.4),
        ("Apple M1", ("mxfp8", 8), 3.7 / 1.7, 3.7 / 1.4),
        ("Apple M2 Pro", ("affine", 8), 2.65, 2.65),
        ("Apple M4 Pro", ("affine", 8), 1.1, 1.2),
        ("Apple M4 Pro", ("affine", 4), 1.3, 1.3),
    ],
)
def test_four_rows_cost_what_the_packing_reads_and_what_is_read_once(name, packing, least, most):
    assert least <= four(name, packing) <= most + 1e-9


def test_four_rows_of_8b_at_8k_cost_what_was_published_and_short_contexts_nothing_more():
    """4.6 GB of weights in 4 bits, 147 kB of keys and values a token: 73 ms beside 34 on an M4 Pro (vllm-metal 503)."""
    share = 8192 * 147_456 / 4.62e9
    assert four("Apple M4 Pro", ("affine", 4), share) == pytest.approx(73 / 34, rel=0.15)
    assert four("Apple M4 Pro", ("affine", 4), share / 8) < 1.43


@pytest.mark.parametrize(
    ("name", "queries", "before", "after", "published"),
    [
        ("Apple M4 Max", 4, 8, 9, 2.34),  # 32 query heads over 8: 0.813 and 1.906 ms at 16k on an M5 Max (mlx 3826)
        ("Apple M4 Max", 8, 4, 5, 3.61),  # unfused: 17.0 ms beside 4.7 on an M4 Max (mlx pull request 1922)
        ("Apple M1", 8, 4, 5, 3.61),
    ],
)
def test_attention_that_no_kernel_does_for_few_rows_costs_as_much_as_for_many(name, queries, before, after, published):
    rows = {1: 1.0, **chip_of(name).rows(14336, cache_share=1e6, queries_a_key=queries)}  # all of a pass is attention
    cost = [interpolate(rows, n) for n in (before, after, 32)]
    assert cost[1] / cost[0] == pytest.approx(published, rel=0.2) and cost[2] == pytest.approx(cost[1])
    assert cost[0] == pytest.approx(before)


def test_where_no_row_has_a_kernel_several_cost_no_more_attention():
    assert chip_of("Apple M4").rows(4096, cache_share=1e6, queries_a_key=64)[2] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("chip", [Chip(1, ""), Chip(2, "Max"), Chip(3, "Ultra"), Chip(3, "Pro"), Chip(5, "")])
@pytest.mark.parametrize("packing", [("affine", 4), ("affine", 8), ("mxfp4", 4), None])
def test_a_row_costs_its_own_reading_of_experts_and_shares_that_of_the_rest(chip, packing):
    """Experts are gathered, row by row, on every chip and in every packing; the bug: as dense ones."""
    dense, half, experts = ({1: 1.0, **chip.rows(4096, packing, expert_share=share)} for share in (0.0, 0.5, 1.0))
    for n in range(1, TILE_ROWS + 1):
        assert interpolate(experts, n) == pytest.approx(1 + EXPERT_ROW_COST * (n - 1))
        assert interpolate(half, n) == pytest.approx((interpolate(dense, n) + interpolate(experts, n)) / 2)


def four(name, packing, share=0.0):
    return interpolate({1: 1.0, **chip_of(name).rows(4097, packing, share)}, 4)


def test_a_draft_step_costs_its_start_where_kernels_are_launched():
    assert draft_step(0.07, 0.75, launches=False) == pytest.approx(0.07)
    assert draft_step(0.07, 0.75, launches=True) == pytest.approx(0.07 + 0.75 * LAUNCH_SHARE)
