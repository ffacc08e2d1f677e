"""The record of a pull: what it keeps, and what it refuses to believe."""

from __future__ import annotations

import errno
import json

import pytest

from fakes.hub_cache import COMMIT, NAME, OTHER_COMMIT, place
from specdec_cli.errors import NotAvailable
from specdec_cli.hub import manifest
from specdec_cli.hub.manifest import Entry

ENTRIES = [Entry("config.json", 2, "a" * 40), Entry("model.safetensors", 1000, "b" * 64)]


def test_what_is_written_is_read_by_name(cache):
    manifest.write(NAME, COMMIT, reversed(ENTRIES))
    assert manifest.read(NAME, COMMIT) == {entry.path: entry for entry in ENTRIES}


def test_a_commit_that_no_pull_has_compared_has_none(cache):
    place(cache, compared=False)
    assert manifest.read(NAME, COMMIT) is None


@pytest.mark.parametrize("commit", ["main", "../../victim", "", "a" * 41])
def test_what_is_no_commit_has_no_manifest(cache, commit):
    assert manifest.read(NAME, commit) is None
    with pytest.raises(ValueError, match="no commit"):
        manifest.manifest_path(NAME, commit)


def text(**changed) -> str:
    file = {"path": "config.json", "size_bytes": 2, "digest": "a" * 40} | changed
    return json.dumps({"version": 1, "files": [file]})


DAMAGED = ["", "{", "[]", "null", '{"version": 1}', '{"version": 1, "files": []}', '{"version": 2, "files": []}']
DAMAGED += [text(path="../victim.txt"), text(path="/etc/x.json"), text(path="code.py"), text(digest="..")]
DAMAGED += [text(size_bytes="2"), text(path=["config.json"]), text(digest=None)]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_manifest_counts_as_none(cache, damage):
    manifest.write(NAME, COMMIT, ENTRIES)
    manifest.manifest_path(NAME, COMMIT).write_text(damage)
    assert manifest.read(NAME, COMMIT) is None


def test_a_sound_manifest_of_that_shape_is_read(cache):
    """Negative control of the damages above."""
    manifest.write(NAME, COMMIT, ENTRIES)
    manifest.manifest_path(NAME, COMMIT).write_text(text())
    assert manifest.read(NAME, COMMIT) == {"config.json": ENTRIES[0]}


def test_the_same_entries_are_not_written_again(cache, monkeypatch):
    manifest.write(NAME, COMMIT, ENTRIES)
    monkeypatch.setattr(manifest, "replace_text", lambda *_: pytest.fail("written"))
    manifest.write(NAME, COMMIT, ENTRIES)


@pytest.mark.parametrize(("code", "is_raised"), [(errno.EROFS, False), (errno.EACCES, False), (errno.ENOSPC, True)])
def test_a_cache_for_reading_only_keeps_nothing_and_a_full_disk_is_an_error(cache, monkeypatch, code, is_raised):
    def fail(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(manifest, "replace_text", fail)
    try:
        manifest.write(NAME, COMMIT, ENTRIES)
    except OSError as error:
        assert (is_raised, error.errno) == (True, code)
    else:
        assert not is_raised


def test_a_folder_of_manifests_that_leads_out_is_refused(cache, tmp_path):
    place(cache, compared=False)
    (cache / "models--org--tiny" / ".specdec").symlink_to(tmp_path)
    with pytest.raises(NotAvailable, match="lies outside the model cache"):
        manifest.write(NAME, COMMIT, ENTRIES)


def test_a_forgotten_commit_leaves_the_others(cache):
    for commit in (COMMIT, OTHER_COMMIT):
        manifest.write(NAME, commit, ENTRIES)
    manifest.forget(NAME, [COMMIT, "../../../victim"])
    assert manifest.read(NAME, COMMIT) is None
    assert manifest.read(NAME, OTHER_COMMIT) is not None


def test_compared_digests_come_from_every_commit(cache):
    manifest.write(NAME, COMMIT, ENTRIES[:1])
    manifest.write(NAME, OTHER_COMMIT, ENTRIES[1:])
    assert manifest.compared_digests(NAME) == {("a" * 40, 2), ("b" * 64, 1000)}
