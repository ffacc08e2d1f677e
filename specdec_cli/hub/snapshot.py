"""Describes one commit of a Hub repository: the model's files, their sizes, and which of them are in the cache.

Every value of the Hub's listing is checked before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub
from huggingface_hub import constants

from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.format import count
from specdec_cli.core.jsonfile import shown
from specdec_cli.hub import cache
from specdec_cli.hub.cached import RemoteFile, cached_folder, is_compared, read_record
from specdec_cli.hub.client import LISTED, as_user_error, no_hub

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

FOREIGN_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


@dataclass(frozen=True, slots=True)
class HubSnapshot:
    """The files of `name` at one commit, weights last. A pull lets the branch or tag `revision` point to it.

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
        return sum(file.size_bytes for file in self.files if file.is_weights and not cache.is_head(file.path))

    @property
    def head_files(self) -> tuple[RemoteFile, ...]:
        """The files for a head alone."""
        return tuple(file for file in self.files if cache.is_head(file.path))

    @property
    def folder(self) -> Path:
        """The folder of the files, which need not exist yet."""
        return cache.snapshot_folder(self.name, self.commit)

    def places(self, file: RemoteFile) -> list[Path]:
        """Where the bytes of `file` may be: its blob, which another commit may have brought, and its place here."""
        blobs = [] if file.digest is None else [cache.repository(self.name) / "blobs" / file.digest]
        return [*blobs, self.folder / file.path]


def resolve(name: str, revision: str | None = None, *, offline: bool = False) -> HubSnapshot:
    """Ask the Hub once for the commit of `revision` (None: main) and its files' sizes and digests.

    Its name is spelled as in the cache, else as the Hub does: both take names in another case for the same.
    No call is made when `offline`, under HF_HUB_OFFLINE, or for a complete commit that an earlier pull compared.
    Raises: NotAvailable, also for a repository without a model and for an invalid name, size or digest.
    """
    cache.require_hub_id(name)
    cache.require_revision(name, revision)
    name = cache.cached_spelling(name)
    pinned = revision if revision is not None and cache.COMMIT.fullmatch(revision) else None
    with as_user_error(name):
        is_here = pinned is not None and is_compared(name, cache.snapshot_folder(name, pinned))
        if offline or constants.is_offline_mode() or is_here:
            return _read_cached(name, revision)
        try:
            seconds = float(constants.HF_HUB_ETAG_TIMEOUT)
            info = huggingface_hub.HfApi().model_info(name, revision=revision, files_metadata=True, timeout=seconds)
            listed, spelled, commit = info.siblings or [], str(info.id), info.sha or ""
            paths = [str(file.rfilename) for file in listed]
        # JSON, but not a model's, or nested so deeply that it cannot be read.
        except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, AssertionError) as error:
            raise no_hub(name) from error
    if not (isinstance(commit, str) and cache.COMMIT.fullmatch(commit)) or commit != (pinned or commit):
        raise NotAvailable(
            f"the Hub answers with commit {shown(commit)} of {name} when asked for {pinned or 'one'}", cache.DISTRUST
        )
    name = cache.cached_spelling(spelled) if cache.same_model(name, spelled) else name
    _require_model(name, paths)
    files = [_checked(name, path, file) for path, file in zip(paths, listed, strict=True) if cache.is_wanted(path)]
    LISTED[name, commit] = {file.path: file.digest for file in files}
    snapshot = HubSnapshot(name, commit, _order(files), revision or constants.DEFAULT_REVISION)
    with as_user_error(name):
        here = [any(f.difference(at, read_weights=False) is None for at in snapshot.places(f)) for f in snapshot.files]
    both = zip(snapshot.files, here, strict=True)
    return replace(snapshot, files=tuple(replace(file, cached=cached) for file, cached in both))


def _checked(name: str, path: str, listed: RepoSibling) -> RemoteFile:
    """Raises: NotAvailable for a size or a digest that is none."""
    digest = listed.lfs.sha256 if listed.lfs else listed.blob_id
    size_bytes = (listed.lfs.size if listed.lfs else listed.size) or 0
    if not isinstance(size_bytes, int) or size_bytes < 0:
        raise NotAvailable(f"the Hub gives {path} of {name} the size {shown(size_bytes)}", cache.DISTRUST)
    digest = None if digest is None else cache.require_digest(name, path, digest)
    return RemoteFile(path, size_bytes, digest)


def _require_model(name: str, paths: list[str]) -> None:
    """Raises: NotAvailable for a repository that mlx-lm cannot load; nothing has been fetched yet."""
    if not any(cache.is_weights(path) for path in paths if cache.is_wanted(path)):
        others = sorted(path for path in paths if path.endswith(FOREIGN_WEIGHTS))
        raise NotAvailable(
            f"{name} has no model*.safetensors, only {others[0][:100] if others else count(len(paths), 'other file')}",
            "use an MLX or safetensors conversion of the model",
        )
    if "config.json" not in paths:
        raise NotAvailable(f"{name} has weights but no config.json", "use a repository that mlx-lm can load")


def _read_cached(name: str, revision: str | None) -> HubSnapshot:
    """The complete snapshot in the cache, with the digests of its record, else of its links. Raises: NotAvailable."""
    folder = cached_folder(name, revision)
    files = [*read_record(name, folder.name).values()]
    for path in () if files else cache.list_files(folder):
        place = folder / path
        blob = place.readlink().name if place.is_symlink() else ""  # a blob has the name of its digest
        digest = blob if cache.DIGEST.fullmatch(blob) else None
        files.append(RemoteFile(path, place.stat().st_size, digest, True))
    return HubSnapshot(name, folder.name, _order(files), revision or folder.name, from_cache=True)


def _order(files: list[RemoteFile]) -> tuple[RemoteFile, ...]:
    return tuple(sorted(files, key=lambda file: (file.is_weights, file.path)))
