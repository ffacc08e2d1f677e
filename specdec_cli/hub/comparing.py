"""Compares bytes with a digest: sha256 for big files, git's sha-1 of a blob for small ones.

This finds bytes that a mirror, a proxy, a connection or a disk altered. It does not find a Hub that lies both in its
listing and in its bytes. A pinned commit alone does not help: the Hub's interface does not tie a listing to a commit.
A commit that was pulled before does help (`manifest`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from specdec_cli.errors import NotAvailable

CHUNK_BYTES = 1 << 20
SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that differs from the Hub's: both digests or sizes, or `missing`, or `added`."""

    path: str
    expected: str
    found: str


def no_report(count: int) -> None:
    """Ignores the bytes read so far."""


def digest_of(path: Path, expected: str, report: Callable[[int], None] = no_report) -> str:
    """The digest of the bytes at `path`, of the same kind as `expected`; `report` gets the bytes read so far.

    Raises: OSError.
    """
    digest = hasher(expected, path.stat().st_size)
    done_bytes = 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            done_bytes += len(chunk)
            report(done_bytes)
    return digest.hexdigest()


def small_digest_of(path: Path, expected: str) -> str:
    """The digest of a small file, which is read again only after its time or size changed. Raises: OSError."""
    status = path.stat()
    return _remembered(path, expected, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=1024)
def _remembered(path: Path, expected: str, *_: int) -> str:
    return digest_of(path, expected)


def hasher(expected: str, size_bytes: int) -> hashlib._Hash:
    """An empty digest of the same kind as `expected`; git's begins with the size."""
    if len(expected) == SHA256_DIGITS:
        return hashlib.sha256()
    return hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)


class Arriving:
    """A file that a download writes: it is digested as it comes, and never exceeds `size_bytes` (0: unknown).

    It has the methods of a binary file that huggingface_hub's `http_get` uses. `http_get` goes back to the start when
    a server ignores a range; the digest then starts again.
    """

    def __init__(self, stream: IO[bytes], expected: str, size_bytes: int, label: str) -> None:
        self._stream, self._expected, self._size_bytes, self._label = stream, expected, size_bytes, label
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        if self._size_bytes and self._stream.tell() + len(data) > self._size_bytes:
            raise NotAvailable(
                f"{self._label} is longer than the {self._size_bytes} bytes that the Hub lists",
                "check HF_ENDPOINT, and whether a proxy alters what comes through it",
            )
        self._digest.update(data)
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, position: int) -> int:
        return self._stream.seek(position)

    def truncate(self) -> int:
        """Drop what comes after the position, and digest again what comes before it."""
        kept = self._stream.truncate()
        self._digest = hashlib.sha256()
        self._stream.seek(0)
        while chunk := self._stream.read(CHUNK_BYTES):
            self._digest.update(chunk)
        return kept

    def hexdigest(self, path: Path) -> str:
        """The digest of all bytes. Git's begins with the size, which not every Hub gives, so the file is read again."""
        self._stream.flush()
        return self._digest.hexdigest() if len(self._expected) == SHA256_DIGITS else digest_of(path, self._expected)
