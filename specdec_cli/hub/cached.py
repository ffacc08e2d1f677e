"""Finds the folder of a model by its name, and what of it is missing, altered or added. No network call.

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
from specdec_cli.errors import NotAvailable, PartlyHere
from specdec_cli.format import count
from specdec_cli.hub.cache import (
    COMMIT,
    DIGEST,
    HEAD_FOLDER,
    cached_spelling,
    is_head,
    is_inside,
    is_safe_name,
    is_wanted,
    is_weights,
    kept_head,
    list_files,
    replace_text,
    repository,
    require_hub_id,
    require_revision,
    snapshot_folder,
)
from specdec_cli.hub.client import as_user_error
from specdec_cli.kinds import HEAD

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
        is_wanted(entry.path)
        and is_safe_name(entry.path)
        and bool(DIGEST.fullmatch(entry.digest))
        and entry.size_bytes >= 0
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
        missing = sorted(path for path in _expect_files(name, folder) if not (folder / path).is_file())
        unread = (path for path in list_files(folder) if entries is not None and is_weights(path))
        found = (Problem(path, "there", "missing") for path in missing)
        return (*found, *(Problem(path, "compared", "not compared") for path in unread))
    changed = [problem for path in sorted(entries) if (problem := _change(folder / path, entries[path]))]
    added = (path for path in list_files(folder) if is_wanted(path) and path not in entries)
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


def _expect_files(name: str, folder: Path) -> set[str]:
    """The files that a snapshot without a record must have."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    expected = {path for path in list_files(folder) if (folder / path).is_symlink() and is_wanted(path)} | {
        "config.json"
    }
    try:
        listed = {file.path for file in get_cached_repo_tree(name, revision=folder.name)}
        # A head is fetched by specdec alone: other tools leave out what they do not read.
        expected |= {path for path in listed if is_wanted(path) and is_safe_name(path) and not is_head(path)}
    except CachedRepoTreeNotFoundError:
        pass  # only some tools leave a listing
    shards = jsonfile.read_or_empty(folder / INDEX).get("weight_map")
    if isinstance(shards, dict):
        # Whoever reads the index refuses a shard that is no file of this folder.
        return expected | {str(shard) for shard in shards.values() if is_safe_name(str(shard))}
    foreign = any(path.suffix in FOREIGN_WEIGHTS or is_weights(path.name) for path in folder.iterdir())
    return expected if foreign else expected | {"model.safetensors"}


SHIPPED = "specdec:"
# What brings a model that is not here, followed by its name.
PULL = "specdec pull --target"
PACKAGE = Path(__file__).parents[1]


def locate(name: str, revision: str | None = None) -> Path:
    """The folder of a shipped model, a kept head, a local folder, or a Hub id in the local Hugging Face cache.

    Raises: NotAvailable if it is not here, PartlyHere if files are missing or differ from what was pulled.
    """
    if name.startswith(SHIPPED):
        return _locate_shipped(name)
    if name.startswith(HEAD):
        return kept_head(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _require_own_files(folder, name)
    if folder.exists():
        raise NotAvailable(f"{name} is a file, and a model is a folder", "give the folder that holds config.json")
    require_hub_id(name)
    return cached_folder(cached_spelling(name), revision)


def _locate_shipped(name: str) -> Path:
    """A folder inside the package. Raises: NotAvailable for one outside of it."""
    folder = PACKAGE / name.removeprefix(SHIPPED)
    if not folder.resolve().is_relative_to(PACKAGE.resolve()):
        raise NotAvailable(f"{name} is outside specdec's own folder", "give the folder itself as a path")
    return folder


def _require_own_files(folder: Path, name: str) -> Path:
    """The user's own folder. Its links may lead to files inside it, or inside the cache that it is part of.

    Raises: NotAvailable for a link that leads out, because whoever packed the folder chose what it reads.
    """
    root = folder.resolve()
    if root.parent.name == "snapshots":  # a snapshot given by its path: its files are links to the cache's blobs
        root = root.parents[1]
    try:
        entries = sorted([*folder.iterdir(), *folder.glob("*/*.safetensors")])
    except OSError as error:
        raise NotAvailable(f"{name} cannot be read: {error.strerror}", "check the folder's permissions") from error
    for path in entries:
        if path.is_symlink() and not path.name.startswith(".") and not _leads_into(path, root):
            raise NotAvailable(
                f"{path.relative_to(folder)} of {name} is a link that leads out of the model's folder, "
                f"to {path.readlink()}",
                "put the file itself in its place",
            )
    return folder


def _leads_into(path: Path, root: Path) -> bool:
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    # The cache's store of Xet files, `blobs`, is next to the repository.
    roots = [root, root.parent / "blobs"] if root.name.startswith("models--") else [root]
    return any(map(real.is_relative_to, roots))


def cached_folder(name: str, revision: str | None = None) -> Path:
    """The complete snapshot of `name` at `revision` (None: main) in the cache.

    Raises: NotAvailable, PartlyHere.
    """
    require_revision(name, revision)
    pull = f"{PULL} {name}" + (f" --target-revision {revision}" if revision else "")
    with as_user_error(name, revision):
        folder = _snapshot(name, revision)
        found = problems(name, folder) if folder else ()
    if folder is None:
        at = f" at revision {revision}" if revision else ""
        raise NotAvailable(f"{name}{at} is neither a folder here nor in the model cache", pull)
    if found:
        raise _partly(name, folder, found, pull)
    return folder


def _partly(name: str, folder: Path, found: tuple[Problem, ...], pull: str) -> PartlyHere:
    """One error for all problems. Missing files come first, because a pull brings them back."""
    missing = [problem.path for problem in found if problem.found == "missing"]
    if missing:
        return PartlyHere(
            f"{name} is only partly here: {count(len(missing), 'file')} missing, first {missing[0]}", pull
        )
    first = found[0]
    if first.found == "not compared":
        return PartlyHere(
            f"{first.path} of {name} was not compared with the Hub's checksum: a pull was broken off", pull
        )
    if first.expected == "nothing":
        return PartlyHere(
            f"{first.path} of {name} was put beside the files that were pulled: it is not in the commit",
            f"delete {folder / first.path}",
        )
    return PartlyHere(
        f"{first.path} of {name} is not what was pulled: {first.found[:12]} instead of {first.expected[:12]}", pull
    )


def _snapshot(name: str, revision: str | None) -> Path | None:
    """The snapshot of a revision. None means main, else the only one that a pull compared (by its commit)."""
    if revision is not None and COMMIT.fullmatch(revision):
        commit = revision
    else:
        ref = repository(name) / "refs" / (revision or "main")
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
    if COMMIT.fullmatch(commit) and snapshot_folder(name, commit).is_dir():
        return snapshot_folder(name, commit)
    if revision is not None or commit:
        return None
    compared = [folder for folder in repository(name).glob("snapshots/*") if is_compared(name, folder)]
    return compared[0] if len(compared) == 1 else None


def is_compared(name: str, folder: Path) -> bool:
    """Whether a pull has compared this snapshot of `name` and nothing has changed since. Raises: as `problems`."""
    return folder.is_dir() and bool(read(name, folder.name)) and not problems(name, folder)
