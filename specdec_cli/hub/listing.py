"""Reads the Hub's listing of one revision: its commit and its files. Law: every value is checked before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_cli.errors import NotAvailable
from specdec_cli.format import count
from specdec_cli.hub.cached import spelled_here
from specdec_cli.hub.comparing import SHA256_DIGITS
from specdec_cli.hub.failures import explained, no_hub
from specdec_cli.hub.manifest import Entry, read
from specdec_cli.hub.names import (
    COMMIT,
    DISTRUST,
    HUB_ID,
    SHA256,
    is_weights,
    require_digest,
    require_plain,
    require_size,
    same_file,
    same_model,
    shown,
    wanted,
)

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from huggingface_hub.hf_api import RepoSibling


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of the Hub's listing, with its name, size and digest checked; a size of 0 is unknown."""

    path: str
    size_bytes: int
    sha256: str | None
    git_sha1: str | None


def ask(name: str, revision: str | None, pinned: bool) -> tuple[str, str, list[Listed]]:
    """The model's name, the commit of `revision`, and the model's files at that commit.

    The name is spelled as in the cache, else as the Hub does. `pinned`: the revision is itself a commit.

    Raises: NotAvailable for a repository without a model, or an answer with an invalid name, size or digest.
    """
    info = _info(name, revision)
    name = spelled_here(_spelled(name, info.id))
    commit = _commit(name, info.sha, revision if pinned else None)
    siblings = info.siblings or []
    paths = [_path(name, sibling) for sibling in siblings]
    require_model(name, paths)
    listed = [_listed(name, s) for path, s in zip(paths, siblings, strict=True) if wanted(path)]
    _require_distinct(name, listed)
    return name, commit, _agreed(name, commit, listed)


def _info(name: str, revision: str | None) -> ModelInfo:
    from huggingface_hub import HfApi, constants

    seconds = float(constants.HF_HUB_ETAG_TIMEOUT)
    with explained(name, revision):
        try:
            return HfApi().model_info(name, revision=revision, files_metadata=True, timeout=seconds)
        # JSON, but not a model's, or nested so deeply that it cannot be read.
        except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, AssertionError) as error:
            raise no_hub(name) from error


def _spelled(name: str, answered: object) -> str:
    """The Hub's own spelling of `name`; another name than the one that was asked for is not taken."""
    known = isinstance(answered, str) and answered.isascii() and HUB_ID.fullmatch(answered)
    return str(answered) if known and same_model(name, str(answered)) else name


def _commit(name: str, sha: object, pinned: str | None) -> str:
    if sha is None:
        raise NotAvailable(f"the Hub names no commit for {name}", "give one with --target-revision")
    if not (isinstance(sha, str) and COMMIT.fullmatch(sha)):
        raise NotAvailable(f"the Hub says that {name} is at the commit {shown(sha)}, which is none", DISTRUST)
    if pinned is not None and sha != pinned:
        raise NotAvailable(f"the Hub answers with commit {sha} of {name} when asked for {pinned}", DISTRUST)
    return sha


def _path(name: str, sibling: RepoSibling) -> str:
    path: object = sibling.rfilename
    if not isinstance(path, str):
        raise no_hub(name)
    return require_plain(name, path) if wanted(path) else path


def _listed(name: str, sibling: RepoSibling) -> Listed:
    path, lfs = sibling.rfilename, sibling.lfs
    size_bytes = require_size(name, path, lfs.size if lfs else sibling.size)
    if lfs:
        return Listed(path, size_bytes, require_digest(name, path, lfs.sha256, SHA256), None)
    if sibling.blob_id is None:
        return Listed(path, size_bytes, None, None)
    return Listed(path, size_bytes, *_by_kind(require_digest(name, path, sibling.blob_id)))


def _by_kind(digest: str) -> tuple[str | None, str | None]:
    """The digest as sha256 or as git's sha-1."""
    return (digest, None) if len(digest) == SHA256_DIGITS else (None, digest)


def _require_distinct(name: str, files: list[Listed]) -> None:
    """Raises: NotAvailable for two names that a Mac's disk treats as one file."""
    seen: dict[str, str] = {}
    for file in files:
        other = seen.get(same_file(file.path))
        if other is not None:
            raise NotAvailable(f"the Hub lists both {other} and {file.path} for {name}: one file's name", DISTRUST)
        seen[same_file(file.path)] = file.path


def _agreed(name: str, commit: str, files: list[Listed]) -> list[Listed]:
    """The files, with the digests of an earlier pull of this commit where the Hub gives none.

    Raises: NotAvailable where the two disagree, because the contents of a commit never change.
    """
    before = read(name, commit) or {}
    return [_agree(name, commit, file, before.get(file.path)) for file in files]


def _agree(name: str, commit: str, file: Listed, before: Entry | None) -> Listed:
    now = file.sha256 or file.git_sha1
    if before is None or now == before.digest:
        return file
    if now is not None and len(now) == len(before.digest):
        raise NotAvailable(
            f"the Hub lists {file.path} of {name} as {now[:12]}, and it was {before.digest[:12]} when the same commit "
            f"{commit[:7]} was pulled; a commit never changes",
            DISTRUST,
        )
    if now is not None:
        return file  # another kind of digest: the bytes are compared when they come
    return Listed(file.path, before.size_bytes, *_by_kind(before.digest))


def require_model(name: str, paths: list[str]) -> None:
    """Raises: NotAvailable for a repository that mlx-lm cannot load; nothing has been fetched yet."""
    if not any(is_weights(path) for path in paths if wanted(path)):
        others = sorted(path for path in paths if path.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf")))
        raise NotAvailable(
            f"{name} has no model*.safetensors, only {others[0][:100] if others else count(len(paths), 'other file')}",
            "use an MLX or safetensors conversion of the model",
        )
    if "config.json" not in paths:
        raise NotAvailable(f"{name} has weights but no config.json", "use a repository that mlx-lm can load")
