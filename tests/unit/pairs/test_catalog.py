"""The known pairs: sizes, what fits, what is partly here."""

from pathlib import Path

import pytest

from fakes.packed import QWEN3_30B_A3B, gpt_oss
from specdec_cli.core.errors import NotAvailable, PartlyHere
from specdec_cli.core.gain import break_even_share
from specdec_cli.engine.load import empty_model
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.pairs import catalog
from specdec_cli.pairs.check import Side, break_even
from specdec_cli.pairs.choose import recommended
from specdec_cli.pairs.pair import Pair, Registry
from specdec_cli.pairs.registry import packaged_file, read_registry

GB = 10**9
SMALL = Pair("small", "org/small", "org/tiny", min_memory_gb=8, target_bytes=3 * GB, draft_bytes=GB)
BIG = Pair("big", "org/big", None, min_memory_gb=64)
KNOWN = Registry({"small": SMALL, "big": BIG}, None)


@pytest.fixture(autouse=True)
def _memory(monkeypatch, machine_says):
    machine_says(16 * GB)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def test_a_size_comes_from_the_disk_then_models_toml(monkeypatch):
    assert catalog.size_bytes(SMALL) == 4 * GB
    monkeypatch.setattr(catalog, "_disk_bytes", lambda name, revision: 7 if name == "org/tiny" else None)
    assert catalog.size_bytes(SMALL) == 3 * GB + 7


@pytest.mark.parametrize(
    ("pair", "size", "fits"),
    [
        (SMALL, None, True),
        (BIG, None, False),
        (Pair("plain", "a", None), None, None),
        (Pair("plain", "a", None), 9 * GB, True),
        (Pair("plain", "a", None), 10 * GB, False),
        (Pair("exact", "a", None, min_memory_gb=16.4), None, True),
        (SMALL, 9 * GB, True),
        (SMALL, 10 * GB, False),
        (BIG, GB, False),
    ],
)
def test_a_pair_fits_by_its_stated_memory_and_by_its_size(pair, size, fits):
    assert catalog.fits(pair, size) is fits


def test_every_packaged_pair_fits_the_memory_that_it_names(machine_says, device_says):
    """Four were recommended for Macs on which `check` then refused them."""
    for pair in read_registry(packaged_file(), "packaged").pairs.values():
        if memory := int((pair.min_memory_gb or 0) * 2**30):
            machine_says(memory)
            device_says(working_set_bytes=memory * 2 // 3 if memory <= 36 * 2**30 else memory * 3 // 4)
            size = catalog.size_bytes(pair, estimate=True) or pair.target_bytes
            assert size and catalog.fits(pair, size), pair.name


MIXTURES = {
    "gpt-oss-120b": gpt_oss(36, 128),
    "gpt-oss-20b": gpt_oss(24, 32),
    "-30B-A3B-": QWEN3_30B_A3B,
}


def test_only_pairs_that_can_pay_are_recommended():
    """gpt-oss-120b was, to every Mac of 128 GB, and `check` says of it that not even full acceptance pays.

    A mixture that is not in the table counts as dense, which is too kind to a draft.
    """

    def side(name, size_bytes):
        config = next((config for part, config in MIXTURES.items() if part in name), None)
        if config is None:
            return Side(size_bytes, {})
        checkpoint = Checkpoint(name, Path(), config, ())
        return Side(size_bytes, config, *empty_model(checkpoint).network.experts(size_bytes, config))

    shares = {}
    for pair in read_registry(packaged_file(), "packaged").pairs.values():
        sizes = (
            pair.target_bytes or catalog.named_bytes(pair.target),
            pair.draft and (pair.draft_bytes or catalog.named_bytes(pair.draft)),
        )
        if all(sizes):
            target, draft = map(side, (pair.target, pair.draft), sizes)
            cost = break_even(target, draft.step_bytes, pair.expected_k)
            shares[pair.name] = (break_even_share(cost, pair.expected_k), bool(pair.min_memory_gb))
    assert not [name for name, (share, offered) in shares.items() if share > 1 and offered]
    assert sorted(name for name, (share, _) in shares.items() if share > 1) == ["gpt-oss-120b", "qwen3-coder-30b"]
    assert len(shares) > 20


def test_a_mac_that_states_its_working_set_is_believed(device_says):
    """Macs up to about 36 GB give two thirds of their memory, not three quarters."""
    device_says(working_set_bytes=int(10.7 * GB))
    plain = Pair("plain", "a", None)
    assert (catalog.fits(plain, int(8.5 * GB)), catalog.fits(plain, 9 * GB)) == (True, False)


def test_the_recommended_pair_is_the_largest_that_fits(machine_says):
    assert recommended(KNOWN) is SMALL
    machine_says(128 * GB)
    assert recommended(KNOWN) is BIG
    machine_says(4 * GB)
    with pytest.raises(NotAvailable, match=r"no listed pair is known to fit 4\.0 GB"):
        recommended(KNOWN)


def test_a_pair_is_verified_where_its_entry_says_so_or_the_hub_knows_none_of_it(tmp_path):
    local, stated = Pair("local", str(tmp_path), None), Pair("stated", "org/a", None, verified=True)
    known = Registry({pair.name: pair for pair in (SMALL, local, stated)}, None)
    assert [row.pair.verified for row in catalog.rows(known)] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("mlx-community/Qwen3-8B-4bit", 4_500_000_000),
        ("HuggingFaceTB/SmolLM-135M-Instruct", 270_000_000),
        ("org/Qwen3-30B-A3B-8bit", 31_875_000_000),
        ("mlx-community/Llama-4-Scout-17B-16E-Instruct-4bit", None),  # its active weights were taken for all
        ("allenai/OLMoE-1B-7B-0924", 14_000_000_000),
        ("mlx-community/gemma-4-e2b-it-4bit", None),
        ("mlx-community/Qwen3.6-27B-MTP-4bit", None),
        ("mlx-community/gemma-4-31B-it-assistant-bf16", None),
        ("70B-models/small", None),
    ],
)
def test_sizes_come_from_what_the_name_states(name, size_bytes):
    assert catalog.named_bytes(name) == size_bytes


def test_what_is_partly_here_names_the_pull_of_the_pair_that_lacks_the_fewest(monkeypatch):
    """`specdec pull NAME`, where NAME stood for a pair that only the file of pairs could tell."""
    told = PartlyHere("org/tiny is only partly here", "specdec pull NAME, the pair that pins this revision")
    gone = NotAvailable("not here", "specdec pull --target org/huge")
    monkeypatch.setattr(catalog, "_problem", lambda name, at: {"org/tiny": told, "org/huge": gone}.get(name))
    listed = [Pair(target, f"org/{target}", "org/tiny", source="yours") for target in ("huge", "small")]
    assert [(one.message, one.hint) for one in catalog.partly_here(listed)] == [(told.message, "specdec pull small")]
    assert catalog.partly_here([Pair("org/small", "org/small", "org/tiny")]) == [told]
