"""One commit of a repository: its sizes, and what of it is here. The Hub is a function."""

from __future__ import annotations

from dataclasses import replace

import pytest
from huggingface_hub import constants

from fakes.hub_cache import COMMIT, FILES, NAME, OTHER_COMMIT, WEIGHTS, listed, place
from fakes.hub_server import Blob
from specdec_cli.errors import NotAvailable, PartlyHere
from specdec_cli.hub import snapshot as snapshots
from specdec_cli.hub.listing import Listed
from specdec_cli.hub.snapshot import RemoteFile, resolve

TOTAL = sum(map(len, FILES.values()))


@pytest.fixture
def online(cache, monkeypatch):
    """A Hub that lists FILES at COMMIT; the calls it got."""
    calls = []

    def ask(name, revision, pinned):
        calls.append((name, revision, pinned))
        return name, COMMIT, [Listed(file.path, file.size_bytes, file.sha256, file.git_sha1) for file in listed().files]

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(snapshots, "ask", ask)
    return calls


def test_sizes_are_sums_over_the_files():
    some = listed()
    half = replace(some, files=(replace(some.files[0], cached=True), *some.files[1:]))
    assert (half.total_bytes, half.download_bytes, half.weight_bytes) == (TOTAL, TOTAL - 2, 1000)


def test_a_head_in_files_of_its_own_is_counted_by_itself(online, cache):
    heads = {"mtp/model.safetensors": b"h" * 50, "mtp.safetensors": b"h" * 60}
    some = listed(FILES | heads)
    assert (some.total_bytes, some.weight_bytes) == (TOTAL + 110, 1000)
    assert {file.path for file in some.head_files} == set(heads)
    place(cache, FILES | heads)
    held = resolve(NAME, offline=True)
    assert {file.path for file in held.files} == set(FILES | heads) and held.total_bytes == TOTAL + 110


def test_a_digest_is_kept_by_its_kind():
    file = RemoteFile("config.json", 2, None, False)
    assert file.digest is None
    assert file.with_digest("a" * 64) == replace(file, sha256="a" * 64)
    assert file.with_digest("a" * 64).with_digest("b" * 40) == replace(file, git_sha1="b" * 40)


@pytest.mark.parametrize(("size_bytes", "is_whole"), [(2, True), (0, True), (3, False)])
def test_a_file_is_whole_with_its_listed_size_or_where_none_is_listed(tmp_path, size_bytes, is_whole):
    path = tmp_path / "config.json"
    assert not RemoteFile("config.json", size_bytes, None, False).is_whole(path)
    path.write_bytes(b"{}")
    assert RemoteFile("config.json", size_bytes, None, False).is_whole(path) is is_whole


def test_nothing_here_means_everything_to_download_weights_last(online):
    found = resolve(NAME)
    assert (found, found.download_bytes) == (listed(), TOTAL)
    assert [file.path for file in found.files][-1] == WEIGHTS
    assert online == [(NAME, None, False)]


@pytest.mark.parametrize("commit", [COMMIT, OTHER_COMMIT])
def test_what_this_or_another_commit_brought_is_here(cache, online, commit):
    place(cache, commit=commit)
    assert resolve(NAME) == listed(cached=True)


def test_a_small_file_of_the_right_size_and_other_bytes_is_not_here(cache, online):
    (place(cache) / "config.json").resolve().write_bytes(b"[]")
    assert {file.path: file.cached for file in resolve(NAME).files}["config.json"] is False


def test_a_link_out_of_the_cache_is_not_here(cache, online, tmp_path):
    (tmp_path / "same").write_bytes(FILES[WEIGHTS])
    pointer = place(cache) / WEIGHTS
    pointer.resolve().unlink()
    pointer.unlink()
    pointer.symlink_to(tmp_path / "same")
    assert {file.path: file.cached for file in resolve(NAME).files}[WEIGHTS] is False


def test_a_compared_commit_that_is_all_here_asks_nothing(cache, online):
    place(cache)
    found = resolve(NAME, COMMIT)
    assert (found.held, found.download_bytes, found.revision, online) == (True, 0, COMMIT, [])
    assert replace(found, held=False, revision="main") == listed(cached=True)


def test_a_commit_that_no_pull_compared_is_asked_for(cache, online):
    place(cache, compared=False)
    assert not resolve(NAME, COMMIT).held
    assert online == [(NAME, COMMIT, True)]


def test_a_branch_is_asked_for_even_where_all_is_here(cache, online):
    place(cache)
    assert not resolve(NAME, "main").held
    assert online == [(NAME, "main", False)]


def test_offline_the_cache_answers(cache, online):
    place(cache)
    found = resolve(NAME, offline=True)
    assert (found.held, found.commit, found.total_bytes, online) == (True, COMMIT, TOTAL, [])


def test_the_environments_offline_counts_too(cache, online, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NotAvailable, match="is neither a folder here nor in the model cache"):
        resolve(NAME)
    assert online == []


def test_offline_half_a_model_is_refused(cache, online):
    (place(cache) / WEIGHTS).unlink()
    with pytest.raises(PartlyHere):
        resolve(NAME, offline=True)


def test_offline_digests_come_from_the_manifest_else_from_the_links(cache):
    folder = place(cache, compared=False)
    digests = {path: Blob(path, data).etag for path, data in FILES.items()}
    assert {file.path: file.digest for file in resolve(NAME, offline=True).files} == digests
    (folder / "config.json").unlink()
    (folder / "config.json").write_bytes(b"{}")  # a cache without links
    assert {file.path: file.digest for file in resolve(NAME, offline=True).files} == digests | {"config.json": None}


@pytest.mark.parametrize(("name", "revision"), [("nobody", None), (NAME, "../x")])
def test_a_name_or_revision_that_can_be_none_asks_nothing(online, name, revision):
    with pytest.raises(NotAvailable):
        resolve(name, revision)
    assert online == []
