"""Are the bytes in the cache the ones the Hub has? By digest; sizes are checked on arrival already."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from specdec_cli.hub.download import Progress, silent
from specdec_cli.hub.failures import explained
from specdec_cli.hub.layout import repository
from specdec_cli.hub.snapshot import RemoteFile, Snapshot

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that is not what the Hub has: digests, or `missing`."""

    path: str
    expected: str
    found: str


def verify(snapshot: Snapshot, progress: Progress = silent) -> list[Problem]:
    """Read every file here and compare its digest: sha256 for big files, git's sha-1 for small ones.

    Files whose digest nobody knows (a cache without symbolic links, offline) are passed over.
    Raises: NotAvailable where a file cannot be read.
    """
    problems = []
    for file in snapshot.files:
        with explained(snapshot.name):
            problem = _check(snapshot, file, progress)
        if problem is not None:
            problems.append(problem)
    return problems


def discard(snapshot: Snapshot, problems: list[Problem]) -> None:
    """Remove these files, so that the next pull fetches them anew. Raises: NotAvailable without permission."""
    files = {file.path: file for file in snapshot.files}
    for problem in problems:
        file = files[problem.path]
        with explained(snapshot.name):
            (snapshot.folder / file.path).unlink(missing_ok=True)
            (repository(snapshot.name) / "blobs" / str(file.sha256 or file.git_sha1)).unlink(missing_ok=True)


def _check(snapshot: Snapshot, file: RemoteFile, progress: Progress) -> Problem | None:
    expected = file.sha256 or file.git_sha1
    path = snapshot.folder / file.path
    if not path.is_file():
        return Problem(file.path, expected or "there", "missing")
    if expected is None:
        return None
    size_bytes = path.stat().st_size
    digest = hashlib.sha256()
    if file.sha256 is None:
        digest = hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)
    done_bytes = 0
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            done_bytes += len(chunk)
            progress(file.path, min(done_bytes, file.size_bytes), file.size_bytes)
    return None if digest.hexdigest() == expected else Problem(file.path, expected, digest.hexdigest())
