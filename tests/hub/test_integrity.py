"""Reading everything again, and removing what is damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.hub_cache import FILES, NAME, WEIGHTS, listed, place
from fakes.hub_server import Blob
from specdec_cli.errors import NotAvailable
from specdec_cli.hub.comparing import Problem
from specdec_cli.hub.integrity import discard, verify


def test_whole_files_have_no_problem_and_are_read_to_their_end(cache):
    place(cache)
    heard = []
    assert verify(listed(), lambda *values: heard.append(values)) == []
    assert heard == [(path, len(FILES[path]), len(FILES[path])) for path in FILES]


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_flipped_byte_shows_both_digests(cache, path):
    """Weights of the right size are found by this alone."""
    altered = b"!" + FILES[path][1:]
    (place(cache) / path).resolve().write_bytes(altered)
    assert verify(listed()) == [Problem(path, Blob(path, FILES[path]).etag, Blob(path, altered).etag)]


def test_a_lost_file_is_missing(cache):
    (place(cache) / "config.json").unlink()
    assert verify(listed()) == [Problem("config.json", Blob("config.json", b"{}").etag, "missing")]


def test_a_file_without_a_digest_is_passed_over(cache):
    (place(cache) / WEIGHTS).resolve().write_bytes(b"anything")
    unknown = tuple(replace(file, sha256=None, git_sha1=None) for file in listed().files)
    assert verify(replace(listed(), files=unknown)) == []


def test_a_file_outside_the_cache_is_not_read(cache, tmp_path):
    pointer = place(cache) / "config.json"
    pointer.unlink()
    pointer.symlink_to(tmp_path / "victim.txt")
    with pytest.raises(NotAvailable, match="lies outside the model cache"):
        verify(listed())


def test_discarding_takes_the_file_and_its_bytes_and_nothing_else(cache):
    snapshot = place(cache)
    blob = (snapshot / WEIGHTS).resolve()
    discard(listed(), [Problem(WEIGHTS, "a", "b")])
    assert not blob.exists()
    assert sorted(path.name for path in snapshot.iterdir()) == ["config.json", "tokenizer.json"]
    assert len(list(blob.parent.iterdir())) == 2


def test_discarding_a_link_leaves_what_it_leads_to(cache, tmp_path):
    pointer = place(cache) / "config.json"
    pointer.unlink()
    pointer.symlink_to(tmp_path / "victim.txt")
    discard(listed(), [Problem("config.json", "a", "b")])
    assert not pointer.is_symlink()


def test_a_snapshot_folder_that_leads_out_is_left_alone(cache, tmp_path):
    snapshot = place(cache)
    snapshot.rename(tmp_path / "elsewhere")
    snapshot.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAvailable, match=f"of {NAME} lies outside the model cache"):
        discard(listed(), [Problem("config.json", "a", "b")])
    assert (tmp_path / "elsewhere" / "config.json").is_symlink()
