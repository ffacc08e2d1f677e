"""Keeps what a pull has compared, and finds what of it is missing, altered or added. Law: no network call.

The record of a commit names its files with sizes and digests, and is empty from the moment a pull fetches weights until
all their bytes were compared. It also shows a commit that the Hub later lists differently, which is refused because
the contents of a commit never change. Every lookup of a model compares all sizes, and the digests of small files;
weights are read again by `pull --verify` alone, because that takes seconds per gigabyte. Another tool's snapshot has no
record; then the listing which that tool may have left, the index and broken links tell what is missing.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable
from specdec_cli.hub.cache import is_inside, replace_text, repository
from specdec_cli.hub.names import COMMIT, DIGEST, HEAD_FOLDER, is_head, is_place, is_weights, list_files, wanted

VERSION = 1
SHA256_DIGITS = 64
READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
INDEX = "model.safetensors.index.json"
FOREIGN_WEIGHTS = {".bin", ".pt", ".pth", ".gguf"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file at the time its bytes were compared."""

    path: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that differs from the Hub's: both digests or sizes, or `missing`, `added` or `not compared`."""

    path: str
    expected: str
    found: str


def digest_of(path: Path, expected: str) -> str:
    """The digest of the bytes at `path`, of the same kind as `expected`: sha256, else git's sha-1 of a blob.

    The bytes are read again only after the file's time or size changed. Raises: OSError.
    """
    status = path.stat()
    return _digest(path.resolve(), len(expected) == SHA256_DIGITS, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=1024)
def _digest(path: Path, is_sha256: bool, size_bytes: int, *_: int) -> str:
    git = hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, hashlib.sha256 if is_sha256 else lambda: git).hexdigest()


def read(name: str, commit: str) -> dict[str, Entry] | None:
    """The files of this commit by name, none while a pull goes on; None without a record, or with a damaged one."""
    try:
        values = jsonfile.read_object(_path(name, commit))
        entries = [Entry(file["path"], file["size_bytes"], file["digest"]) for file in values["files"]]
        sound = values["version"] == VERSION and all(map(_is_sound, entries))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {entry.path: entry for entry in entries} if sound else None


def _is_sound(entry: Entry) -> bool:
    return (
        wanted(entry.path) and is_place(entry.path) and bool(DIGEST.fullmatch(entry.digest)) and entry.size_bytes >= 0
    )


def write(name: str, commit: str, entries: Iterable[Entry]) -> None:
    """Record these files of `commit` as compared. A read-only cache records nothing.

    Raises: OSError for any other failure.
    """
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    text = json.dumps({"version": VERSION, "commit": commit, "files": files}, indent=1)
    try:
        replace_text(name, _path(name, commit), text)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise


def forget(name: str, commits: Iterable[str]) -> None:
    """Remove the records of these commits. Raises: OSError."""
    for commit in filter(COMMIT.fullmatch, commits):
        _path(name, commit).unlink(missing_ok=True)


def compared_digests(name: str) -> frozenset[tuple[str, int]]:
    """(digest, size in bytes) of every file of `name` that a pull has compared."""
    commits = [path.stem for path in repository(name).glob(".specdec/*.json")]
    return frozenset((e.digest, e.size_bytes) for commit in commits for e in (read(name, commit) or {}).values())


def _path(name: str, commit: str) -> Path:
    return repository(name) / ".specdec" / f"{commit}.json"


def problems(name: str, folder: Path) -> tuple[Problem, ...]:
    """The missing, altered and added files of this snapshot of `name`, sorted by file; added ones last.

    Raises: NotAvailable for a link out of the cache; OSError.
    """
    # The folder of heads may itself be a link; then nothing in it is looked at before that was found out.
    for path in sorted({folder / HEAD_FOLDER, *(folder / path for path in list_files(folder))}):
        if path.is_symlink() and not is_inside(name, path):
            raise NotAvailable(
                f"{path.name} of {name} is a link that leads out of the model cache, to {path.readlink()}",
                f"remove {path}, then specdec pull --target {name}",
            )
    entries = read(name, folder.name)
    if not entries:
        missing = sorted(path for path in _expected(name, folder) if not (folder / path).is_file())
        unread = (path for path in list_files(folder) if entries is not None and is_weights(path))
        found = (Problem(path, "there", "missing") for path in missing)
        return (*found, *(Problem(path, "compared", "not compared") for path in unread))
    changed = [problem for path in sorted(entries) if (problem := _change(folder / path, entries[path]))]
    added = (path for path in list_files(folder) if wanted(path) and path not in entries)
    return (*changed, *(Problem(path, "nothing", "added") for path in added))


def _change(path: Path, entry: Entry) -> Problem | None:
    """Compare the size of a file, and the digest of a small one. Raises: OSError."""
    if not path.is_file():
        return Problem(entry.path, "there", "missing")
    size_bytes = path.stat().st_size
    if size_bytes != entry.size_bytes:
        return Problem(entry.path, f"{entry.size_bytes} B", f"{size_bytes} B")
    found = entry.digest if is_weights(entry.path) else digest_of(path, entry.digest)
    return None if found == entry.digest else Problem(entry.path, entry.digest, found)


def _expected(name: str, folder: Path) -> set[str]:
    """The files that a snapshot without a record must have."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    expected = {path for path in list_files(folder) if (folder / path).is_symlink() and wanted(path)} | {"config.json"}
    try:
        listed = {file.path for file in get_cached_repo_tree(name, revision=folder.name)}
        # A head is fetched by specdec alone: other tools leave out what they do not read.
        expected |= {path for path in listed if wanted(path) and is_place(path) and not is_head(path)}
    except CachedRepoTreeNotFoundError:
        pass  # only some tools leave a listing
    shards = jsonfile.remembered(folder / INDEX).get("weight_map")
    if isinstance(shards, dict):
        # Whoever reads the index refuses a shard that is no file of this folder.
        return expected | {str(shard) for shard in shards.values() if is_place(str(shard))}
    foreign = any(path.suffix in FOREIGN_WEIGHTS or is_weights(path.name) for path in folder.iterdir())
    return expected if foreign else expected | {"model.safetensors"}
