"""A whole model into the cache: what is compared, what is kept, and when a branch moves. `bring` is a function."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from fakes.hub_cache import COMMIT, FILES, NAME, OTHER_COMMIT, WEIGHTS, listed, place
from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.hub import download, manifest
from specdec_cli.hub.snapshot import resolve

TOTAL = sum(map(len, FILES.values()))


@pytest.fixture
def brought(cache, monkeypatch):
    """Files come when asked for; their names in order."""
    names = []

    def bring(snapshot, file, known, progress):
        names.append(file.path)
        place(cache, {file.path: FILES[file.path]}, ref="", compared=False)

    monkeypatch.setattr(download, "bring", bring)
    return names


def ref(cache):
    path = cache / "models--org--tiny" / "refs" / "main"
    return path.read_text() if path.is_file() else None


def test_a_model_comes_with_its_weights_last_then_its_manifest_then_its_branch(cache, brought):
    folder = download.fetch(listed())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert (sorted(brought), brought[-1]) == (sorted(FILES), WEIGHTS)
    assert set(manifest.read(NAME, COMMIT)) == set(FILES)
    assert ref(cache) == COMMIT


def test_a_broken_pull_leaves_branch_and_manifest_as_they_were(cache, brought, monkeypatch):
    place(cache, {"config.json": b"[]"}, commit=OTHER_COMMIT)
    bring = download.bring

    def broken(snapshot, file, known, progress):
        if file.is_weights:
            raise OSError("the line broke")
        bring(snapshot, file, known, progress)

    monkeypatch.setattr(download, "bring", broken)
    with pytest.raises(NotAvailable):
        download.fetch(listed())
    assert (ref(cache), manifest.read(NAME, COMMIT)) == (OTHER_COMMIT, None)


def test_what_is_here_is_compared_and_not_brought(cache, brought):
    place(cache, compared=False)
    download.fetch(listed(cached=True))
    assert brought == []
    assert manifest.read(NAME, COMMIT) is not None


def test_altered_weights_that_no_pull_compared_are_brought_anew(cache, brought):
    (place(cache, compared=False) / WEIGHTS).unlink()
    download.fetch(listed(cached=True))
    assert brought == [WEIGHTS]


def test_the_small_files_come_without_a_byte_of_weights_and_move_no_branch(cache, brought):
    download.fetch_small(listed())
    assert sorted(brought) == ["config.json", "tokenizer.json"]
    assert ref(cache) is None


def test_a_model_described_from_the_cache_is_never_fetched(cache, brought):
    folder = place(cache)
    held = resolve(NAME, offline=True)
    assert (download.fetch(held), brought) == (folder, [])
    (folder / "config.json").unlink()
    with pytest.raises(NotAvailable, match=r"config\.json of org/tiny is gone"):
        download.fetch(held)
    assert brought == []


def test_every_file_is_reported_as_done(brought):
    heard = []
    download.fetch(listed(), lambda *values: heard.append(values))
    assert sorted(heard) == sorted((path, len(data), len(data)) for path, data in FILES.items())


# Space


def test_a_model_that_does_not_fit_is_refused_with_both_numbers_before_a_byte(cache, brought, monkeypatch):
    monkeypatch.setattr(download, "free_bytes", lambda: 1000)
    with pytest.raises(DoesNotFit) as error:
        download.fetch(listed())
    assert error.value.message == f"{NAME} needs 1.0 kB, and the disk of {cache} has 1.0 kB free"
    assert brought == []


def test_models_are_added_up_and_one_commit_counts_once(cache, monkeypatch):
    monkeypatch.setattr(download, "free_bytes", lambda: TOTAL)
    download.check_space([listed(), listed()])
    with pytest.raises(DoesNotFit):
        download.check_space([listed(), listed(commit=OTHER_COMMIT)])


def test_what_is_here_needs_no_space(cache, monkeypatch):
    monkeypatch.setattr(download, "free_bytes", lambda: 0)
    download.check_space([listed(cached=True)])


def test_free_space_is_that_of_the_nearest_folder_before_the_cache_is_made(cache, monkeypatch):
    asked = []
    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: asked.append(folder) or SimpleNamespace(free=7))
    assert download.free_bytes() == 7
    cache.rmdir()
    assert download.free_bytes() == 7
    assert asked == [cache, cache.parent]


# What no pull has compared


def test_only_weights_that_are_here_and_uncompared_are_to_be_read(cache):
    assert download.uncompared_bytes([listed()]) == 0
    place(cache, compared=False)
    assert download.uncompared_bytes([listed(cached=True)]) == 1000
    assert download.uncompared_bytes([resolve(NAME, offline=True)]) == 0
    download.fetch(listed(cached=True))
    assert download.uncompared_bytes([listed(cached=True)]) == 0


def test_only_old_parts_are_swept(cache):
    place(cache)
    blobs = cache / "models--org--tiny" / "blobs"
    old, fresh = blobs / "old.incomplete", blobs / "fresh.incomplete"
    for path in (old, fresh):
        path.write_bytes(b"left")
    now = fresh.stat().st_mtime
    os.utime(old, (now - download.ABANDONED_SECONDS - 1,) * 2)
    download._sweep(NAME, now)
    assert (old.exists(), fresh.exists(), len(list(blobs.iterdir()))) == (False, True, len(FILES) + 1)


def test_a_part_that_another_pull_moves_meanwhile_is_no_error(cache, monkeypatch):
    place(cache)
    part = cache / "models--org--tiny" / "blobs" / "part.incomplete"
    part.write_bytes(b"arriving")

    def is_inside(name, path):
        part.rename(path / "whole")  # the other pull, between this one's two looks
        return True

    monkeypatch.setattr(download, "is_inside", is_inside)
    download._sweep(NAME, 1e12)
    assert (part.with_name("whole").exists(), part.exists()) == (True, False)


def test_no_part_outside_the_cache_is_swept(cache, tmp_path):
    place(cache)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.incomplete").write_bytes(b"another program's")
    blobs = cache / "models--org--tiny" / "blobs"
    blobs.rename(tmp_path / "blobs")
    blobs.symlink_to(tmp_path / "elsewhere")
    download._sweep(NAME, 1e12)
    assert (tmp_path / "elsewhere" / "x.incomplete").exists()
