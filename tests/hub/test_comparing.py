"""Digests of files at rest and of files that are coming."""

from __future__ import annotations

import hashlib
import io

import pytest

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.comparing import CHUNK_BYTES, Arriving, digest_of, small_digest_of

SHA256, GIT_SHA1 = "0" * 64, "0" * 40


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def arriving(expected: str = SHA256, size_bytes: int = 0) -> Arriving:
    return Arriving(io.BytesIO(), expected, size_bytes, "config.json of org/tiny")


def test_an_empty_file_has_the_digests_that_git_and_sha256_give(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert digest_of(path, GIT_SHA1) == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert digest_of(path, SHA256) == hashlib.sha256().hexdigest()


def test_the_digest_is_of_the_kind_that_is_expected(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"{}")
    assert digest_of(path, GIT_SHA1) == git_sha1(b"{}")
    assert digest_of(path, SHA256) == hashlib.sha256(b"{}").hexdigest()


def test_bytes_read_are_reported_and_end_with_all_of_them(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(CHUNK_BYTES + 5))
    heard: list[int] = []
    digest_of(path, SHA256, heard.append)
    assert heard == [CHUNK_BYTES, CHUNK_BYTES + 5]


def test_a_small_file_is_read_again_only_after_it_changed(tmp_path, monkeypatch):
    reads = []
    monkeypatch.setattr(
        "specdec_cli.hub.comparing.digest_of", lambda path, expected: reads.append(path) or digest_of(path, expected)
    )
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    assert small_digest_of(path, GIT_SHA1) == small_digest_of(path, GIT_SHA1) == git_sha1(b"{}")
    assert len(reads) == 1
    path.write_bytes(b"{ }")
    assert small_digest_of(path, GIT_SHA1) == git_sha1(b"{ }")
    assert len(reads) == 2


@pytest.mark.parametrize("pieces", [[b"abcdef"], [b"ab", b"cdef"], [b"a", b"", b"bcde", b"f"]])
def test_the_digest_of_what_came_does_not_depend_on_its_pieces(tmp_path, pieces):
    stream = arriving()
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    assert stream.hexdigest(tmp_path / "unread") == hashlib.sha256(b"abcdef").hexdigest()


def test_a_download_that_starts_again_is_digested_anew(tmp_path):
    stream = arriving()
    stream.write(b"first try")
    stream.seek(0)
    assert stream.truncate() == 0
    stream.write(b"second")
    assert stream.hexdigest(tmp_path / "unread") == hashlib.sha256(b"second").hexdigest()


def test_what_is_before_the_cut_still_counts(tmp_path):
    stream = arriving()
    stream.write(b"kept and lost")
    stream.seek(4)
    assert stream.truncate() == 4
    assert stream.tell() == 4
    stream.write(b" and new")
    assert stream.hexdigest(tmp_path / "unread") == hashlib.sha256(b"kept and new").hexdigest()


def test_gits_digest_is_taken_from_the_file_because_it_begins_with_the_size(tmp_path):
    path = tmp_path / "part"
    with path.open("w+b") as raw:
        stream = Arriving(raw, GIT_SHA1, 0, "config.json of org/tiny")
        stream.write(b"{}")
        assert stream.hexdigest(path) == git_sha1(b"{}")


def test_a_body_longer_than_listed_is_refused_before_it_is_written():
    stream = arriving(size_bytes=4)
    stream.write(b"four")
    with pytest.raises(NotAvailable, match=r"config\.json of org/tiny is longer than the 4 bytes that the Hub lists"):
        stream.write(b"!")
    assert stream.tell() == 4
