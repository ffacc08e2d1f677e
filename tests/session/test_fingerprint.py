"""Whose caches they are: whatever changes them changes the fingerprint, and nothing else does."""

import os
import shutil

import pytest

from specdec_cli.models.checkpoint import read_checkpoint
from specdec_cli.pairs.local import Draft, model_folder
from specdec_cli.session.load import fingerprint_of, load


@pytest.fixture(scope="module")
def demo():
    return load("demo")


@pytest.fixture
def folder(demo, tmp_path):
    """A copy of the target's files."""
    source = model_folder(demo.pair, demo.pair.target, None)
    return shutil.copytree(source, tmp_path / "target")


def of(demo, folder, slot=None):
    return fingerprint_of(slot or demo.first, read_checkpoint(folder, "t"), Draft(read_checkpoint(folder, "d")))


def test_other_parts_and_other_types_of_cache_are_others(demo):
    others = [load("demo", drafter="none"), load("demo-hybrid"), demo]
    assert len({pair.fingerprint for pair in others}) == 3


def test_another_date_size_or_place_is_another(demo, folder, tmp_path):
    found = [of(demo, folder)]
    assert of(demo, folder) == found[0]
    weights = next(folder.glob("model*.safetensors"))
    os.utime(weights, (1, 1))
    found.append(of(demo, folder))
    config = folder / "config.json"
    config.write_text(config.read_text() + " ")
    found.append(of(demo, folder))
    found.append(of(demo, folder.rename(tmp_path / "moved")))
    assert len(set(found)) == 4


def test_another_version_is_another(demo, folder, monkeypatch):
    found = [of(demo, folder)]
    monkeypatch.setattr("specdec_cli.session.load.SCHEMA", 99)
    found.append(of(demo, folder))
    monkeypatch.setattr("specdec_cli.engine.device.versions", lambda: {"mlx": "0", "mlx-lm": "0"})
    found.append(of(demo, folder))
    assert len(set(found)) == 3
