"""One commit of a Hub repository: which of its files are the model, how big they are, and which are here already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.cached import cached_folder, missing_files, require_hub_id
from specdec_cli.hub.failures import explained
from specdec_cli.hub.layout import (
    COMMIT,
    blob_name,
    is_weights,
    prepare,
    repository,
    snapshot_folder,
    wanted,
)

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of the model: big ones have a sha256, small ones git's sha-1, None where neither Hub nor cache names one.

    `size_bytes` is 0 where a mirror of the Hub tells no sizes.
    """

    path: str
    size_bytes: int
    sha256: str | None
    cached: bool
    git_sha1: str | None = None

    @property
    def is_weights(self) -> bool:
        return is_weights(self.path)

    def is_whole(self, path: Path) -> bool:
        """Is this file at `path`, with the Hub's size?"""
        return path.is_file() and self.size_bytes in (0, path.stat().st_size)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of `name` at one commit, weights last; `revision` is the name that will mean it here."""

    name: str
    commit: str
    files: tuple[RemoteFile, ...]
    revision: str = "main"

    @property
    def total_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def download_bytes(self) -> int:
        """What is not in the cache yet."""
        return sum(file.size_bytes for file in self.files if not file.cached)

    @property
    def weight_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files if file.is_weights)

    @property
    def folder(self) -> Path:
        """Where the files are, or will be."""
        return snapshot_folder(self.name, self.commit)


def resolve(name: str, revision: str | None = None, *, offline: bool = False) -> Snapshot:
    """Ask the Hub once which commit `revision` (None: main) is, and for its files' sizes and digests.

    No call at all when `offline`, under HF_HUB_OFFLINE, or for a commit that is all here.
    Raises: NotAvailable.
    """
    require_hub_id(name)
    prepare()
    from huggingface_hub import HfApi, constants

    if offline or constants.is_offline_mode():
        return _held(name, revision)
    if revision is not None and COMMIT.fullmatch(revision) and _is_complete(name, revision):
        return _held(name, revision)
    with explained(name, revision):
        info = HfApi().model_info(
            name, revision=revision, files_metadata=True, timeout=float(constants.HF_HUB_ETAG_TIMEOUT)
        )
    siblings = info.siblings or []
    if info.sha is None:
        raise NotAvailable(f"the Hub names no commit for {name}", "give one with --target-revision")
    _require_model(name, [sibling.rfilename for sibling in siblings])
    files = [_remote(name, info.sha, sibling) for sibling in siblings if wanted(sibling.rfilename)]
    return Snapshot(name, info.sha, _ordered(files), revision or constants.DEFAULT_REVISION)


def _remote(name: str, commit: str, sibling: RepoSibling) -> RemoteFile:
    lfs = sibling.lfs
    size_bytes = (lfs.size if lfs else sibling.size) or 0
    sha256, git_sha1 = (lfs.sha256, None) if lfs else (None, sibling.blob_id)
    file = RemoteFile(sibling.rfilename, size_bytes, sha256, False, git_sha1)
    blob = repository(name) / "blobs" / str(sha256 or git_sha1)  # another commit may have brought it
    here = (snapshot_folder(name, commit) / file.path, blob)
    return replace(file, cached=any(map(file.is_whole, here)))


def _held(name: str, revision: str | None) -> Snapshot:
    """The complete snapshot in the cache, described from its files. Raises: NotAvailable."""
    folder = cached_folder(name, revision)
    files = [_local(path) for path in folder.iterdir() if wanted(path.name) and path.is_file()]
    return Snapshot(name, folder.name, _ordered(files), revision or folder.name)


def _local(path: Path) -> RemoteFile:
    digest = blob_name(path) or ""
    sha256 = digest if len(digest) == 64 else None
    git_sha1 = digest if len(digest) == 40 else None
    return RemoteFile(path.name, path.stat().st_size, sha256, True, git_sha1)


def _is_complete(name: str, commit: str) -> bool:
    folder = snapshot_folder(name, commit)
    return folder.is_dir() and not missing_files(name, folder)


def _ordered(files: list[RemoteFile]) -> tuple[RemoteFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.is_weights, file.path)))


def _require_model(name: str, paths: list[str]) -> None:
    """Raises: NotAvailable for a repository mlx-lm cannot load, before anything is fetched."""
    if not any(is_weights(path) for path in paths if wanted(path)):
        others = sorted(path for path in paths if path.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf")))
        raise NotAvailable(
            f"{name} has no model*.safetensors, only {others[0] if others else f'{len(paths)} other files'}",
            "use an MLX or safetensors conversion of the model",
        )
    if "config.json" not in paths:
        raise NotAvailable(f"{name} has weights but no config.json", "use a repository that mlx-lm can load")
