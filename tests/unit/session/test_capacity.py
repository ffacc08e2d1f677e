"""What a pair can take on: the bytes its caches really take, the context it really has."""

import pytest

from fakes.serving import ids, tiny_loaded
from specdec_cli.session.capacity import MOST_SNAPSHOTS, Capacity, capacity_of


@pytest.mark.parametrize(
    "tokens", [300, pytest.param(2000, marks=pytest.mark.slow), pytest.param(5000, marks=pytest.mark.full)]
)
def test_the_bytes_are_those_of_a_slot_that_read_so_much(tmp_path, tokens):
    """Within a row of blocks: caches grow by 256 tokens."""
    pair = tiny_loaded(tmp_path)
    capacity, slot = capacity_of(pair), pair.slot()
    for model in (slot.target, slot.draft):
        list(model.prefill(ids(tokens)))
    grain = capacity.cache_bytes(2048) / 8
    assert slot.nbytes - grain <= capacity.cache_bytes(max(tokens, 1024)) <= max(slot.nbytes, grain * 4) + grain


@pytest.mark.parametrize("kind", ["window", "recurrent"])
def test_bounded_caches_stop_growing_and_count_their_snapshots(tmp_path, kind):
    capacity = capacity_of(tiny_loaded(tmp_path, kind))
    near, far = capacity.cache_bytes(1 << 14), capacity.cache_bytes(1 << 15)
    assert near <= far < 2 * near
    assert capacity.snapshots == MOST_SNAPSHOTS
    poor = capacity_of(tiny_loaded(tmp_path / "poor", kind), usable_bytes=capacity.weight_bytes * 2)
    assert poor.snapshots < MOST_SNAPSHOTS and poor.cache_bytes(1 << 14) < near


def test_between_two_lengths_it_grows_in_a_straight_line_and_so_on_beyond_the_longest():
    capacity = Capacity(0, 0, ((1000, 10), (2000, 30), (4000, 40)))
    found = [capacity.cache_bytes(tokens) for tokens in (1, 1000, 1500, 2000, 3000, 4000, 9000)]
    assert found == [10, 10, 20, 30, 35, 40, 65]
