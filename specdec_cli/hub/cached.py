"""Snapshots in the cache: found by a Hub id, judged by what is missing, altered or added, removed. No network call.

The record of a commit names the files that a pull has compared, with sizes and digests. Every lookup of a model
compares all sizes, and the digests of small files; weights are read again by a pull alone, because that takes seconds
per gigabyte. Another tool's snapshot has no record; then the listing which that tool may have left and the index tell
what is missing.
Law of a removal: no other snapshot loses a byte; the planned bytes are the freed bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import NotAvailable, PartlyHere
from specdec_cli.core.format import count
from specdec_cli.core.kinds import HEAD
from specdec_cli.core.readfile import open_file, read_file
from specdec_cli.core.safetensors import INDEX, find_weights
from specdec_cli.hub import cache
from specdec_cli.hub.client import as_user_error

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, HFCacheInfo

VERSION = 2
SHA256_DIGITS = 64
FOREIGN_WEIGHTS = {".bin", ".pt", ".pth", ".gguf"}


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that differs from the Hub's: both digests or sizes, or `missing` or `added`."""

    path: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of the model. `digest` is a sha256 for big files and git's sha-1 for small ones, None where unknown.

    `size_bytes` is 0 where a mirror of the Hub gives no sizes.
    """

    path: str
    size_bytes: int
    digest: str | None
    cached: bool = False

    @property
    def is_weights(self) -> bool:
        return cache.is_weights(self.path)

    def difference(self, path: Path, read_weights: bool) -> Problem | None:
        """How the bytes at `path` differ from this file; weights are compared by their size unless they are read.

        Raises: OSError.
        """
        if not path.is_file():
            return Problem(self.path, "there", "missing")
        size_bytes = path.stat().st_size
        if self.size_bytes not in (0, size_bytes):
            return Problem(self.path, f"{self.size_bytes} B", f"{size_bytes} B")
        if self.digest is None or (self.is_weights and not read_weights):
            return None
        found = digest_of(path, self.digest)
        return None if found == self.digest else Problem(self.path, self.digest, found)


def digest_of(path: Path, expected: str) -> str:
    """The digest of the bytes at `path`, of the same kind as `expected`: sha256, else git's sha-1 of a blob.

    The bytes are read again only after the file's time or size changed. Raises: OSError.
    """
    status = path.stat()
    return _digest(path.resolve(), len(expected) == SHA256_DIGITS, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=1024)
def _digest(path: Path, is_sha256: bool, size_bytes: int, *_: int) -> str:
    git = hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)
    with open_file(path) as stream:
        return hashlib.file_digest(stream, hashlib.sha256 if is_sha256 else lambda: git).hexdigest()


def read_record(name: str, commit: str) -> dict[str, RemoteFile]:
    """The compared files of this commit by name; empty without a record, or with a damaged one."""
    try:
        values = jsonfile.read_object(_record(name, commit))
        files = [RemoteFile(file["path"], file["size_bytes"], file["digest"], True) for file in values["files"]]
        sound = values["version"] == VERSION and all(
            cache.is_wanted(f.path) and cache.DIGEST.fullmatch(str(f.digest)) for f in files
        )
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {file.path: file for file in files} if sound else {}


def write_record(name: str, commit: str, files: Iterable[RemoteFile]) -> None:
    """Record these files of `commit` as compared. Raises: OSError."""
    ordered = sorted(files, key=lambda file: file.path)
    entries = [{"path": file.path, "size_bytes": file.size_bytes, "digest": file.digest} for file in ordered]
    path = _record(name, commit)
    path.parent.mkdir(parents=True, exist_ok=True)
    jsonfile.replace_text(path, json.dumps({"version": VERSION, "commit": commit, "files": entries}, indent=1))


def _record(name: str, commit: str) -> Path:
    return cache.repository(name) / ".specdec" / f"{commit}.json"


def problems(name: str, folder: Path) -> list[Problem]:
    """The missing, altered and added files of this snapshot of `name`, sorted by file; added ones last.

    Raises: OSError.
    """
    record = read_record(name, folder.name)
    if not record:
        missing = sorted(path for path in _expected_files(name, folder) if not (folder / path).is_file())
        return [Problem(path, "there", "missing") for path in missing]
    changed = (record[path].difference(folder / path, read_weights=False) for path in sorted(record))
    added = [Problem(path, "nothing", "added") for path in cache.list_files(folder) if path not in record]
    return [*filter(None, changed), *added]


def _expected_files(name: str, folder: Path) -> set[str]:
    """The files that a snapshot without a record must have."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    expected = {path for path in cache.list_files(folder) if (folder / path).is_symlink()} | {"config.json"}
    with suppress(CachedRepoTreeNotFoundError):  # only some tools leave a listing
        listed = {file.path for file in get_cached_repo_tree(name, revision=folder.name)}
        # A head is fetched by specdec alone: other tools leave out what they do not read.
        expected |= {path for path in listed if cache.is_wanted(path) and not cache.is_head(path)}
    shards = jsonfile.read_or_empty(folder / INDEX).get("weight_map")
    if isinstance(shards, dict):
        missing = find_weights(folder, jsonfile.read_or_empty(folder / "config.json"), shards).missing
        return expected | set(filter(cache.is_wanted, missing))
    return expected if _has_weights(folder) else expected | {"model.safetensors"}


def _has_weights(folder: Path) -> bool:
    """Whether weights of any format are at the top of `folder`."""
    return any(path.suffix in FOREIGN_WEIGHTS or cache.is_weights(path.name) for path in folder.iterdir())


# What brings a model that is not here, followed by its name, or by that of the pair that pins it.
PULL = "specdec pull"


def cached_folder(name: str, revision: str | None = None) -> Path:
    """The complete snapshot of `name` at `revision` (None: main) in the cache. Raises: NotAvailable, PartlyHere."""
    cache.require_revision(name, revision)
    pull = f"{PULL} NAME, the pair that pins this revision" if revision else f"{PULL} --target {name}"
    with as_user_error(name):
        folder = _snapshot(name, revision)
        if folder and not (read_record(name, folder.name) or _has_weights(folder)):
            folder = None  # a verdict before the weights fetched the rest
        found = problems(name, folder) if folder else []
    if folder is None:
        at = f" at revision {revision}" if revision else ""
        raise NotAvailable(f"{name}{at} is neither a folder here nor in the model cache", pull)
    if found:
        raise _partly(name, folder, found, pull)
    return folder


def _partly(name: str, folder: Path, found: list[Problem], pull: str) -> PartlyHere:
    """One error for all problems. Missing files come first, because a pull brings them back."""
    missing, first = [problem.path for problem in found if problem.found == "missing"], found[0]
    if missing:
        text = f"{name} is only partly here: {count(len(missing), 'file')} missing, first {missing[0]}"
        return PartlyHere(text, pull)
    if first.found == "added":
        return PartlyHere(
            f"{first.path} of {name} was added after the pull: it is not in the commit",
            f"delete {folder / first.path}",
        )
    return PartlyHere(
        f"{first.path} of {name} is not what was pulled: {first.found[:12]} instead of {first.expected[:12]}", pull
    )


def _snapshot(name: str, revision: str | None) -> Path | None:
    """The snapshot of a revision. None means main, else the only one that a pull compared (by its commit)."""
    if revision is not None and cache.COMMIT.fullmatch(revision):
        commit = revision
    else:
        ref = cache.repository(name) / "refs" / (revision or "main")
        commit = read_file(ref).decode().strip() if ref.is_file() else ""
    if cache.COMMIT.fullmatch(commit) and cache.snapshot_folder(name, commit).is_dir():
        return cache.snapshot_folder(name, commit)
    if revision is not None or commit:
        return None
    folders = [folder for folder in sorted(cache.repository(name).glob("snapshots/*")) if folder.is_dir()]
    compared = [folder for folder in folders if is_compared(name, folder)]
    whole = compared or [folder for folder in folders if not problems(name, folder)]
    if len(whole) > 1:
        commits = ", ".join(folder.name[:12] for folder in whole)
        raise NotAvailable(
            f"{name} is here at {len(whole)} commits, {commits}, and nothing says which is meant",
            f"name one: specdec pairs add NAME --target {name} --target-revision {whole[0].name}",
        )
    return whole[0] if whole else None


def is_compared(name: str, folder: Path) -> bool:
    """Whether a pull has compared this snapshot of `name` and nothing has changed since. Raises: as `problems`."""
    return folder.is_dir() and bool(read_record(name, folder.name)) and not problems(name, folder)


@dataclass(frozen=True, slots=True)
class Removal:
    """The effect of removing `commits` of `name`; without commits its whole folder is removed.

    That is so of a kept head (`head:ORGANISATION/NAME`) and of a broken folder.
    """

    name: str
    commits: tuple[str, ...]
    kept_commits: tuple[str, ...]
    freed_bytes: int


def removal(name: str, commit: str | None = None) -> Removal:
    """Plan to remove one commit of `name`, or everything of it; nothing changes yet. Raises: NotAvailable.

    What the commits that are kept use as well stays, and is not among the freed bytes.
    """
    if name.startswith(HEAD):
        return Removal(name, (), (), head_bytes(name))
    cache.require_hub_id(name)
    name = cache.cached_spelling(name)
    folder = cache.repository(name)
    with as_user_error(name):
        if not folder.is_dir():
            raise NotAvailable(f"{name} is not in the model cache {cache.cache_folder()}", "specdec pairs lists all")
        scanned, repo = _scan(name)
    if repo is None and commit is not None:
        beside = sorted(one.name[:7] for one in folder.glob("snapshots/*") if one.name != commit)
        if beside:  # the library cannot say which files are whose
            message = f"{name} is damaged in the model cache, and {', '.join(beside)} is there beside {commit[:7]}"
            raise NotAvailable(message, f"specdec rm {name} removes all of it")
    revisions = repo.revisions if repo else frozenset()
    going = {revision for revision in revisions if commit in (None, revision.commit_hash)}
    staying = revisions - going
    if repo and commit is not None and not going:
        here = ", ".join(sorted(revision.commit_hash[:7] for revision in staying))
        raise NotAvailable(f"{name} has no commit {commit} here, only {here}", f"specdec rm {name}")
    blobs = {file.blob_path for revision in going for file in revision.files}
    outside = [path for path in blobs if not _is_inside(name, path)]
    if not staying and (repo is None or outside):
        whole = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        return Removal(name, (), (), sum(path.lstat().st_size for path in [*whole, *_stored_alone(folder)]))
    if outside:  # the library would remove what a link leads to, wherever that is
        raise NotAvailable(f"{outside[0].name} of {name} lies outside the model cache", f"look at {outside[0]}")
    freed_bytes = scanned.delete_revisions(*(revision.commit_hash for revision in going)).expected_freed_size
    parts = [part.size_on_disk for part in scanned.incomplete_files if part.file_path.parents[1].name == folder.name]
    return Removal(
        name,
        tuple(sorted(revision.commit_hash for revision in going)),
        tuple(sorted(revision.commit_hash for revision in staying)),
        freed_bytes + (0 if staying else sum(parts)),
    )


def remove(plan: Removal) -> int:
    """Carry out the plan; returns the bytes freed. Raises: NotAvailable if something could not be removed."""
    if plan.name.startswith(HEAD):
        return remove_head(plan.name)
    with as_user_error(plan.name):
        if not plan.commits:
            folder = cache.repository(plan.name)
            payloads = _stored_alone(folder)
            shutil.rmtree(folder)
            for payload in payloads:
                payload.unlink(missing_ok=True)
                payload.with_suffix(".refs").unlink(missing_ok=True)  # the library's list of the links
            return plan.freed_bytes
        strategy = _scan(plan.name)[0].delete_revisions(*plan.commits)
        strategy.execute()
        for commit in plan.commits:
            _record(plan.name, commit).unlink(missing_ok=True)
    stuck = sorted(path for path in strategy.repos | strategy.snapshots | strategy.blobs if os.path.lexists(path))
    if stuck:
        raise NotAvailable(
            f"{plan.name} could not be removed: {stuck[0]} is still there", f"check who owns {stuck[0].parent}"
        )
    return plan.freed_bytes


def stored(blob: Path) -> Path | None:
    """The file in the cache's store of Xet files that a blob of a repository links to, if it does.

    The store lies beside the repositories, which share it: `blobs/xx/<Xet hash>`.
    """
    if blob.parent.name != "blobs" or not (blob.is_symlink() and blob.is_file()):
        return None
    target, store = blob.resolve(), (cache.cache_folder() / "blobs").resolve()
    return target if target.parent.parent == store and cache.DIGEST.fullmatch(target.name) else None


def _stored_alone(folder: Path) -> set[Path]:
    """Files in the store that no repository but this one links to."""
    mine, others = set[Path](), set[Path]()
    for blob in cache.cache_folder().glob("*--*/blobs/*"):
        if payload := stored(blob):
            (mine if blob.parents[1] == folder else others).add(payload)
    return mine - others


def _is_inside(name: str, path: Path) -> bool:
    """Whether `path` leads into this model's folder, or into the cache's store of Xet files beside it."""
    roots = cache.repository(name).resolve(), (cache.cache_folder() / "blobs").resolve()
    return any(path.resolve().is_relative_to(root) for root in roots)


def _scan(name: str) -> tuple[HFCacheInfo, CachedRepoInfo | None]:
    """The cache, with this repository alone: the library removes a commit from the first repository that has it.

    None where the repository's folder is broken.
    """
    scanned = huggingface_hub.scan_cache_dir(cache.cache_folder())
    found = [repo for repo in scanned.repos if repo.repo_type == "model" and repo.repo_id == name]
    return replace(scanned, repos=frozenset(found)), found[0] if found else None


def head_bytes(name: str) -> int:
    """Bytes of the kept head, 0 if none is."""
    folder = cache.head_folder(name)
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def remove_head(name: str) -> int:
    """Remove the kept head; returns the bytes freed. Raises: NotAvailable where it cannot be removed."""
    folder, freed = cache.head_folder(name), head_bytes(name)
    with as_user_error(name, folder.parent):
        if folder.is_dir():
            shutil.rmtree(folder)
    return freed
