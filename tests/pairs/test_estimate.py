"""Sizes from names, against every size that the packaged models.toml states."""

import pytest

from specdec_cli.pairs.catalog import named_bytes
from specdec_cli.pairs.registry import packaged_file, read_registry


def stated():
    for pair in read_registry(packaged_file(), "packaged").pairs.values():
        yield from ((n, b) for n, b in ((pair.target, pair.target_bytes), (pair.draft, pair.draft_bytes)) if b)


@pytest.mark.parametrize(("name", "size_bytes"), sorted(set(stated())))
def test_an_estimate_is_within_a_quarter_of_the_stated_size(name, size_bytes):
    found = named_bytes(name)
    assert found is None or abs(found / size_bytes - 1) < 0.25


def test_most_stated_sizes_can_be_estimated():
    names = {name for name, _ in stated()}
    assert sum(named_bytes(name) is not None for name in names) >= 0.9 * len(names)


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("mlx-community/Qwen3-8B-4bit", 4_500_000_000),
        ("HuggingFaceTB/SmolLM-135M-Instruct", 270_000_000),
        ("org/Qwen3-30B-A3B-8bit", 31_875_000_000),
        ("org/model-7B-bf16", 14_000_000_000),
        ("org/model-7b-Q4", 3_937_500_000),
        ("~/models/my-0.5B-MLX-6bit/", 406_250_000),
        ("mlx-community/gemma-4-e2b-it-4bit", None),
        ("org/big", None),
        ("specdec:demo/target", None),
        ("70B-models/small", None),
    ],
)
def test_sizes_come_from_what_the_name_states(name, size_bytes):
    assert named_bytes(name) == size_bytes
