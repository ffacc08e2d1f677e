"""Where the cache keeps a model, and what counts as inside of it."""

from __future__ import annotations

import pytest

from fakes.hub_cache import COMMIT, FILES, NAME, place
from fakes.hub_server import Blob
from specdec_cli.errors import NotAvailable
from specdec_cli.hub import layout

REPOSITORY = "models--org--tiny"


def test_the_places_are_those_that_every_tool_of_the_hub_uses(cache):
    assert layout.cache_folder() == cache
    assert layout.repository(NAME) == cache / REPOSITORY
    assert layout.snapshot_folder(NAME, COMMIT) == cache / REPOSITORY / "snapshots" / COMMIT
    assert layout.blob_path(NAME, "config.json", "a" * 64) == cache / REPOSITORY / "blobs" / ("a" * 64)


@pytest.mark.parametrize("digest", ["../../../victim.txt", "", "a" * 41, "/etc/passwd"])
def test_a_digest_that_is_none_names_no_blob(cache, digest):
    with pytest.raises(NotAvailable, match=r"the Hub gives config\.json of org/tiny the digest "):
        layout.blob_path(NAME, "config.json", digest)


def test_a_snapshots_own_files_are_inside(cache):
    assert all(layout.is_inside(NAME, path) for path in place(cache).iterdir())


def test_a_link_out_of_the_cache_is_outside_and_says_where_it_leads(cache, tmp_path):
    link = place(cache) / "extra.json"
    link.symlink_to(tmp_path / "victim.txt")
    assert not layout.is_inside(NAME, link)
    with pytest.raises(NotAvailable) as error:
        layout.require_inside(NAME, link)
    assert error.value.message.endswith(f"{link} leads to {tmp_path / 'victim.txt'}")
    assert error.value.hint == f"remove {link}, then the same command again"


@pytest.mark.parametrize("path", ["../models--org--other/config.json", "../../../victim.txt", ".."])
def test_another_models_folder_is_outside(cache, path):
    assert not layout.is_inside(NAME, cache / REPOSITORY / path)


def test_a_circle_of_links_is_outside(cache):
    snapshot = place(cache)
    (snapshot / "a.json").symlink_to(snapshot / "b.json")
    (snapshot / "b.json").symlink_to(snapshot / "a.json")
    assert not layout.is_inside(NAME, snapshot / "a.json" / "x")


def test_the_caches_store_of_xet_files_is_inside(cache):
    (cache / "blobs").mkdir()
    blob = place(cache).parents[1] / "blobs" / "x"
    blob.symlink_to(cache / "blobs" / "x")
    assert layout.is_inside(NAME, blob)


def test_a_model_on_another_disk_behind_a_link_is_inside(cache, tmp_path):
    snapshot = place(cache)
    (cache / REPOSITORY).rename(tmp_path / "big disk")
    (cache / REPOSITORY).symlink_to(tmp_path / "big disk")
    assert layout.is_inside(NAME, snapshot / "config.json")


def test_a_blobs_name_is_read_from_the_link(cache):
    pointer = place(cache) / "config.json"
    assert layout.blob_name(pointer) == Blob("config.json", FILES["config.json"]).git_sha1
    assert layout.blob_name(pointer.resolve()) is None


def test_a_link_to_what_is_no_digest_names_no_blob(tmp_path):
    link = tmp_path / "config.json"
    link.symlink_to(tmp_path / "elsewhere")
    assert layout.blob_name(link) is None


def test_a_branch_means_its_new_commit(cache):
    place(cache, ref="")
    layout.write_ref(NAME, "main", COMMIT)
    layout.write_ref(NAME, "feature/fast", COMMIT)
    refs = cache / REPOSITORY / "refs"
    assert (refs / "main").read_text() == (refs / "feature" / "fast").read_text() == COMMIT


def test_a_commit_needs_no_reference(cache):
    place(cache, ref="")
    layout.write_ref(NAME, COMMIT, COMMIT)
    assert list((cache / REPOSITORY / "refs").iterdir()) == []


def test_a_reference_that_is_right_already_is_not_written(cache, monkeypatch):
    place(cache)
    monkeypatch.setattr(layout, "replace_text", lambda *_: pytest.fail("written"))
    layout.write_ref(NAME, "main", COMMIT)


@pytest.mark.parametrize("revision", ["../../victim.txt", "/main", "a/../../b", ".hidden"])
def test_a_reference_outside_of_refs_is_never_written(cache, revision):
    place(cache)
    with pytest.raises(NotAvailable, match="can have no revision"):
        layout.write_ref(NAME, revision, COMMIT)


def test_a_folder_of_references_that_leads_out_is_refused(cache, tmp_path):
    place(cache, ref="")
    (cache / REPOSITORY / "refs").rmdir()
    (cache / REPOSITORY / "refs").symlink_to(tmp_path)
    with pytest.raises(NotAvailable, match="lies outside the model cache"):
        layout.write_ref(NAME, "main", COMMIT)
    assert not (tmp_path / "main").exists()


def test_a_text_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "main"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        layout.replace_text(tmp_path, path, "new \ud800")
    assert path.read_text() == "old"
    layout.replace_text(tmp_path, path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (3400, "3.4 kB"), (12 * 10**6, "12.0 MB"), (43 * 10**8, "4.3 GB")],
)
def test_bytes_in_messages_have_decimal_units(count, text):
    assert layout.size_text(count) == text
