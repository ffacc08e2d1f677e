"""Describes one commit of a Hub repository: the model's files, their sizes, and which of them are in the cache.

Every value of the Hub's listing is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_cli.errors import NotAvailable
from specdec_cli.format import count
from specdec_cli.hub.cache import (
    COMMIT,
    DIGEST,
    DISTRUST,
    HUB_ID,
    blob_path,
    cached_spelling,
    is_head,
    is_inside,
    is_safe_name,
    is_wanted,
    is_weights,
    list_files,
    require_digest,
    require_hub_id,
    require_revision,
    require_size,
    same_model,
    snapshot_folder,
)
from specdec_cli.hub.cached import cached_folder, digest_of, is_compared, read
from specdec_cli.hub.client import as_user_error, no_hub, prepare
from specdec_cli.jsonfile import shown

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from huggingface_hub.hf_api import RepoSibling


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
        return is_weights(self.path)

    def is_whole(self, path: Path) -> bool:
        """Whether this file is at `path` with the Hub's size."""
        return path.is_file() and self.size_bytes in (0, path.stat().st_size)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of `name` at one commit, weights last. `revision` is the branch or tag that a pull points to it.

    `from_cache`: read from the cache without asking the Hub, so nothing is fetched.
    """

    name: str
    commit: str
    files: tuple[RemoteFile, ...]
    revision: str = "main"
    from_cache: bool = False

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
    Raises: NotAvailable, also for a repository without a model and for an invalid name, size or digest.
    """
    require_hub_id(name)
    require_revision(name, revision)
    prepare()
    name = cached_spelling(name)
    from huggingface_hub import constants

    if offline or constants.is_offline_mode():
        return _read_cached(name, revision)
    pinned = revision if revision is not None and COMMIT.fullmatch(revision) else None
    if pinned:
        with as_user_error(name, revision):
            compared = is_compared(name, snapshot_folder(name, pinned))
        if compared:
            return _read_cached(name, revision)
    info = _ask(name, revision)
    if isinstance(info.id, str) and HUB_ID.fullmatch(info.id) and same_model(name, info.id):
        name = cached_spelling(info.id)
    commit = _commit(name, info.sha, pinned)
    with as_user_error(name, revision):
        files = [_look_up(name, commit, file) for file in _check_listing(name, commit, info.siblings or [])]
    return Snapshot(name, commit, _order(files), revision or constants.DEFAULT_REVISION)


def _ask(name: str, revision: str | None) -> ModelInfo:
    from huggingface_hub import HfApi, constants

    with as_user_error(name, revision):
        try:
            seconds = float(constants.HF_HUB_ETAG_TIMEOUT)
            info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=seconds)
        # JSON, but not a model's, or nested so deeply that it cannot be read.
        except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, AssertionError) as error:
            raise no_hub(name) from error
    if not all(isinstance(sibling.rfilename, str) for sibling in info.siblings or []):
        raise no_hub(name)
    return info


def _commit(name: str, sha: object, pinned: str | None) -> str:
    if sha is None:
        raise NotAvailable(f"the Hub names no commit for {name}", "give one with --target-revision")
    if not (isinstance(sha, str) and COMMIT.fullmatch(sha)):
        raise NotAvailable(f"the Hub says that {name} is at the commit {shown(sha)}, which is none", DISTRUST)
    if pinned is not None and sha != pinned:
        raise NotAvailable(f"the Hub answers with commit {sha} of {name} when asked for {pinned}", DISTRUST)
    return sha


def _check_listing(name: str, commit: str, siblings: list[RepoSibling]) -> Iterable[RemoteFile]:
    """The model's files, checked. Raises: NotAvailable."""
    _require_model(name, [sibling.rfilename for sibling in siblings])
    for sibling in siblings:
        path = sibling.rfilename
        if not is_wanted(path):
            continue
        if not is_safe_name(path):
            raise NotAvailable(f"the Hub lists a file of {name} whose name is none: {shown(path)}", DISTRUST)
        digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        size_bytes = require_size(name, path, sibling.lfs.size if sibling.lfs else sibling.size)
        digest = None if digest is None else require_digest(name, path, digest)
        yield _agree(name, commit, RemoteFile(path, size_bytes, digest))


def _require_model(name: str, paths: list[str]) -> None:
    """Raises: NotAvailable for a repository that mlx-lm cannot load; nothing has been fetched yet."""
    if not any(is_weights(path) for path in paths if is_wanted(path)):
        others = sorted(path for path in paths if path.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf")))
        raise NotAvailable(
            f"{name} has no model*.safetensors, only {others[0][:100] if others else count(len(paths), 'other file')}",
            "use an MLX or safetensors conversion of the model",
        )
    if "config.json" not in paths:
        raise NotAvailable(f"{name} has weights but no config.json", "use a repository that mlx-lm can load")


def _agree(name: str, commit: str, file: RemoteFile) -> RemoteFile:
    """The file, with the digest of an earlier pull of this commit where the Hub gives none.

    Raises: NotAvailable where the two disagree, because the contents of a commit never change.
    """
    before = (read(name, commit) or {}).get(file.path)
    if before is None or before.digest == file.digest:
        return file
    if file.digest is None:
        return RemoteFile(file.path, before.size_bytes, before.digest)
    if len(file.digest) != len(before.digest):
        return file  # another kind of digest: the bytes are compared when they come
    raise NotAvailable(
        f"the Hub lists {file.path} of {name} as {file.digest[:12]}, and it was {before.digest[:12]} when the same "
        f"commit {commit[:7]} was pulled; a commit never changes",
        DISTRUST,
    )


def _look_up(name: str, commit: str, file: RemoteFile) -> RemoteFile:
    """The file, with whether it is here: by its size, and for small files by their bytes. A pull compares weights."""
    places = [snapshot_folder(name, commit) / file.path]
    if file.digest is not None:
        places.append(blob_path(name, file.path, file.digest))  # another commit may have brought it
    return replace(file, cached=any(_is_here(name, file, path) for path in places))


def _is_here(name: str, file: RemoteFile, path: Path) -> bool:
    if not (is_inside(name, path) and file.is_whole(path)):
        return False
    return file.digest is None or file.is_weights or digest_of(path, file.digest) == file.digest


def _read_cached(name: str, revision: str | None) -> Snapshot:
    """The complete snapshot in the cache, with the digests of its record, else of its links. Raises: NotAvailable."""
    folder = cached_folder(name, revision)
    digests = {path: entry.digest for path, entry in (read(name, folder.name) or {}).items()}
    files = []
    for path in list_files(folder):
        place = folder / path
        if is_wanted(path) and place.is_file():
            # A blob has the name of its digest. It may itself be a link into the cache's store of Xet files.
            blob = place.readlink().name if place.is_symlink() else ""
            digest = digests.get(path) or (blob if DIGEST.fullmatch(blob) else None)
            files.append(RemoteFile(path, place.stat().st_size, digest, True))
    return Snapshot(name, folder.name, _order(files), revision or folder.name, from_cache=True)


def _order(files: list[RemoteFile]) -> tuple[RemoteFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.is_weights, file.path)))
