"""Bytes against a digest: sha256 for big files, git's sha-1 of a blob for small ones.

What this protects: bytes that a mirror, a proxy, a broken line or a broken disk altered on their way from whoever wrote
the listing. What it cannot: a Hub that lies in its listing *and* in the bytes. A pinned commit alone does not help, for
the Hub's interface gives nothing that ties a listing to a commit; a commit that was pulled before does (`manifest`).
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
    """A file that is not what the Hub has: digests, or `missing`."""

    path: str
    expected: str
    found: str


def unheard(count: int) -> None:
    """A listener for bytes that nobody counts."""


def digest_of(path: Path, expected: str, heard: Callable[[int], None] = unheard) -> str:
    """The digest of the bytes at `path`, of the kind that `expected` is; `heard` gets the bytes read so far.

    Raises: OSError.
    """
    digest = hasher(expected, path.stat().st_size)
    done_bytes = 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            done_bytes += len(chunk)
            heard(done_bytes)
    return digest.hexdigest()


def small_digest_of(path: Path, expected: str) -> str:
    """The same for a file that is looked at often: read again only when its time or size changed. Raises: OSError."""
    status = path.stat()
    return _remembered(path, expected, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=1024)
def _remembered(path: Path, expected: str, *_: int) -> str:
    return digest_of(path, expected)


def hasher(expected: str, size_bytes: int) -> hashlib._Hash:
    """An empty digest of the kind that `expected` is; git's begins with the size."""
    if len(expected) == SHA256_DIGITS:
        return hashlib.sha256()
    return hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)


class Arriving:
    """A file being written by a download: digested on the way, and never longer than `size_bytes` (0: unknown).

    It has the methods of a binary file that huggingface_hub's `http_get` uses. A server that ignores a range makes it
    go back to the start, so the digest starts anew.
    """

    def __init__(self, stream: IO[bytes], expected: str, size_bytes: int, told: str) -> None:
        self._stream, self._expected, self._size_bytes, self._told = stream, expected, size_bytes, told
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        if self._size_bytes and self._stream.tell() + len(data) > self._size_bytes:
            raise NotAvailable(
                f"{self._told} is longer than the {self._size_bytes} bytes that the Hub lists",
                "check HF_ENDPOINT, and whether a proxy alters what comes through it",
            )
        self._digest.update(data)
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, position: int) -> int:
        return self._stream.seek(position)

    def truncate(self) -> int:
        """Forget what lies behind the position, and digest again what lies before it."""
        kept = self._stream.truncate()
        self._digest = hashlib.sha256()
        self._stream.seek(0)
        while chunk := self._stream.read(CHUNK_BYTES):
            self._digest.update(chunk)
        return kept

    def hexdigest(self, path: Path) -> str:
        """The digest of all that came. Git's needs the size first, which not every Hub tells: it is read again."""
        self._stream.flush()
        return self._digest.hexdigest() if len(self._expected) == SHA256_DIGITS else digest_of(path, self._expected)
