"""Compares the bytes in the cache with the Hub's digests. Law: every file is read, the weights included."""

from __future__ import annotations

from specdec_cli.hub.comparing import Problem, digest_of
from specdec_cli.hub.failures import explained
from specdec_cli.hub.layout import blob_path, require_inside
from specdec_cli.hub.progress import Progress, silent
from specdec_cli.hub.snapshot import RemoteFile, Snapshot


def verify(snapshot: Snapshot, progress: Progress = silent) -> list[Problem]:
    """Read every file here and compare its digest: sha256 for big files, git's sha-1 for small ones.

    Files without a known digest are skipped (another tool's, in a cache without symbolic links, offline).
    Raises: NotAvailable where a file cannot be read or is outside the cache.
    """
    problems = []
    for file in snapshot.files:
        with explained(snapshot.name):
            problem = _check(snapshot, file, progress)
        if problem is not None:
            problems.append(problem)
    return problems


def discard(snapshot: Snapshot, problems: list[Problem]) -> None:
    """Remove these files; the next pull fetches them again.

    Raises: NotAvailable without permission, and for a file outside the cache, which stays.
    """
    files = {file.path: file for file in snapshot.files}
    for problem in problems:
        file = files[problem.path]
        with explained(snapshot.name):
            places = [snapshot.folder / file.path]
            if file.digest is not None:
                places.append(blob_path(snapshot.name, file.path, file.digest))
            for place in places:
                require_inside(snapshot.name, place.parent)
                place.unlink(missing_ok=True)


def _check(snapshot: Snapshot, file: RemoteFile, progress: Progress) -> Problem | None:
    path = snapshot.folder / file.path
    if not path.is_file():
        return Problem(file.path, file.digest or "there", "missing")
    if file.digest is None:
        return None
    require_inside(snapshot.name, path)

    def report(done_bytes: int) -> None:
        progress(file.path, min(done_bytes, file.size_bytes), file.size_bytes)

    found = digest_of(path, file.digest, report)
    return None if found == file.digest else Problem(file.path, file.digest, found)
