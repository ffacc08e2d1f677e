"""Records what a pull has compared: every file of one commit with its size and digest.

The record shows a missing, cut or altered file without a network call. It also shows a commit that the Hub later lists
differently, which is refused because the contents of a commit never change. A snapshot of another tool has no manifest;
the next pull compares it and writes one. Every lookup of a model compares all sizes, and the digests of small files.
Weights are read again only by `pull --verify`, because that takes seconds per gigabyte.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from specdec_cli import jsonfile
from specdec_cli.hub.layout import replace_text, repository, require_inside
from specdec_cli.hub.names import COMMIT, DIGEST, is_place, wanted

VERSION = 1
READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file at the time its bytes were compared."""

    path: str
    size_bytes: int
    digest: str


def manifest_path(name: str, commit: str) -> Path:
    """The manifest's file, which need not exist. Raises: ValueError for a value that is no commit."""
    if not COMMIT.fullmatch(commit):
        raise ValueError(f"no commit: {commit[:60]!r}")
    return repository(name) / ".specdec" / f"{commit}.json"


def read(name: str, commit: str) -> dict[str, Entry] | None:
    """The files of this commit by name; None where no pull has compared it, or the manifest is damaged."""
    if not COMMIT.fullmatch(commit):
        return None
    try:
        values = jsonfile.read_object(manifest_path(name, commit))
        if values["version"] != VERSION:
            return None
        entries = [Entry(file["path"], file["size_bytes"], file["digest"]) for file in values["files"]]
        sound = all(map(_is_sound, entries))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {entry.path: entry for entry in entries} if entries and sound else None


def _is_sound(entry: Entry) -> bool:
    known = isinstance(entry.path, str) and isinstance(entry.digest, str) and isinstance(entry.size_bytes, int)
    return known and wanted(entry.path) and is_place(entry.path) and bool(DIGEST.fullmatch(entry.digest))


def write(name: str, commit: str, entries: Iterable[Entry]) -> None:
    """Record these files of `commit` as compared. A read-only cache records nothing.

    Raises: OSError for any other failure.
    """
    files = sorted(entries, key=lambda entry: entry.path)
    if list((read(name, commit) or {}).values()) == files:
        return
    path = manifest_path(name, commit)
    text = json.dumps({"version": VERSION, "commit": commit, "files": [asdict(entry) for entry in files]}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(require_inside(name, path.parent), path, text)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise


def forget(name: str, commits: Iterable[str]) -> None:
    """Remove the manifests of these commits. Raises: OSError."""
    for commit in filter(COMMIT.fullmatch, commits):
        manifest_path(name, commit).unlink(missing_ok=True)


def compared_digests(name: str) -> frozenset[tuple[str, int]]:
    """(digest, size in bytes) of every file of `name` that a pull has compared."""
    commits = [path.stem for path in repository(name).glob(".specdec/*.json")]
    return frozenset((e.digest, e.size_bytes) for commit in commits for e in (read(name, commit) or {}).values())
