"""Describes one commit of a Hub repository: the model's files, their sizes, and which of them are in the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from specdec_cli.hub.cached import cached_folder, spelled_here
from specdec_cli.hub.client import prepare
from specdec_cli.hub.comparing import SHA256_DIGITS, small_digest_of
from specdec_cli.hub.failures import explained
from specdec_cli.hub.layout import blob_name, blob_path, is_inside, snapshot_folder
from specdec_cli.hub.listing import Listed, ask
from specdec_cli.hub.manifest import Entry, read
from specdec_cli.hub.names import COMMIT, files_in, is_head, is_weights, require_hub_id, require_revision, wanted
from specdec_cli.hub.wholeness import is_compared


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of the model. Big files have a sha256, small ones git's sha-1; both are None where no digest is known.

    `size_bytes` is 0 where a mirror of the Hub gives no sizes.
    """

    path: str
    size_bytes: int
    sha256: str | None
    cached: bool
    git_sha1: str | None = None

    @property
    def is_weights(self) -> bool:
        return is_weights(self.path)

    @property
    def digest(self) -> str | None:
        """The digest that its bytes must have."""
        return self.sha256 or self.git_sha1

    def is_whole(self, path: Path) -> bool:
        """Whether this file is at `path` with the Hub's size."""
        return path.is_file() and self.size_bytes in (0, path.stat().st_size)

    def with_digest(self, digest: str) -> RemoteFile:
        """This file with a digest that the listing did not give."""
        is_sha256 = len(digest) == SHA256_DIGITS
        return replace(self, sha256=digest if is_sha256 else None, git_sha1=None if is_sha256 else digest)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of `name` at one commit, weights last. `revision` is the branch or tag that a pull points to it.

    `held`: read from the cache without asking the Hub, so nothing is fetched.
    """

    name: str
    commit: str
    files: tuple[RemoteFile, ...]
    revision: str = "main"
    held: bool = False

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def download_bytes(self) -> int:
        """Bytes that are not in the cache yet."""
        return sum(file.size_bytes for file in self.files if not file.cached)

    @property
    def weight_bytes(self) -> int:
        """Of the model; a head in files of its own is counted by itself."""
        return sum(file.size_bytes for file in self.files if file.is_weights and not is_head(file.path))

    @property
    def head_files(self) -> tuple[RemoteFile, ...]:
        """The files for a head alone."""
        return tuple(file for file in self.files if is_head(file.path))

    @property
    def folder(self) -> Path:
        """The folder of the files, which need not exist yet."""
        return snapshot_folder(self.name, self.commit)


def resolve(name: str, revision: str | None = None, *, offline: bool = False) -> Snapshot:
    """Ask the Hub once for the commit of `revision` (None: main) and its files' sizes and digests.

    Its name is spelled as in the cache, else as the Hub does: both take names in another case for the same.
    No call is made when `offline`, under HF_HUB_OFFLINE, or for a complete commit that an earlier pull compared.
    Raises: NotAvailable.
    """
    require_hub_id(name)
    require_revision(name, revision)
    prepare()
    name = spelled_here(name)
    from huggingface_hub import constants

    if offline or constants.is_offline_mode():
        return _held(name, revision)
    pinned = revision is not None and COMMIT.fullmatch(revision) is not None
    if revision is not None and pinned:
        with explained(name, revision):
            compared = is_compared(name, snapshot_folder(name, revision))
        if compared:
            return _held(name, revision)
    name, commit, listed = ask(name, revision, pinned)
    with explained(name, revision):
        files = [_remote(name, commit, file) for file in listed]
    return Snapshot(name, commit, _ordered(files), revision or constants.DEFAULT_REVISION)


def _remote(name: str, commit: str, listed: Listed) -> RemoteFile:
    """The file, with whether it is here: by its size, and for small files by their bytes. A pull compares weights."""
    file = RemoteFile(listed.path, listed.size_bytes, listed.sha256, False, listed.git_sha1)
    places = [snapshot_folder(name, commit) / file.path]
    if file.digest is not None:
        places.append(blob_path(name, file.path, file.digest))  # another commit may have brought it
    return replace(file, cached=any(_is_here(name, file, path) for path in places))


def _is_here(name: str, file: RemoteFile, path: Path) -> bool:
    if not (is_inside(name, path) and file.is_whole(path)):
        return False
    return file.digest is None or file.is_weights or small_digest_of(path, file.digest) == file.digest


def _held(name: str, revision: str | None) -> Snapshot:
    """The complete snapshot in the cache, read from its manifest or its files. Raises: NotAvailable."""
    folder = cached_folder(name, revision)
    entries = read(name, folder.name) or {}
    here = [path for path in files_in(folder) if wanted(path) and (folder / path).is_file()]
    files = [_local(folder, path, entries.get(path)) for path in here]
    return Snapshot(name, folder.name, _ordered(files), revision or folder.name, held=True)


def _local(folder: Path, path: str, entry: Entry | None) -> RemoteFile:
    file = RemoteFile(path, (folder / path).stat().st_size, None, True)
    digest = entry.digest if entry else blob_name(folder / path)
    return file.with_digest(digest) if digest else file


def _ordered(files: list[RemoteFile]) -> tuple[RemoteFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.is_weights, file.path)))
