"""Removes a model from the shared cache. Law: no other snapshot loses a byte; the planned bytes are the freed bytes."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub

from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.kinds import HEAD
from specdec_cli.hub.cache import cache_folder, cached_spelling, repository, require_hub_id
from specdec_cli.hub.cached import forget
from specdec_cli.hub.client import as_user_error
from specdec_cli.hub.kept_heads import head_bytes, remove_head

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, HFCacheInfo


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
    require_hub_id(name)
    name = cached_spelling(name)
    folder = repository(name)
    with as_user_error(name):
        if not folder.is_dir():
            raise NotAvailable(f"{name} is not in the model cache {cache_folder()}", "specdec pairs lists all")
        cache, repo = _scan(name)
    revisions = repo.revisions if repo else frozenset()
    going = {revision for revision in revisions if commit in (None, revision.commit_hash)}
    staying = revisions - going
    if repo and commit is not None and not going:
        here = ", ".join(sorted(revision.commit_hash[:7] for revision in staying))
        raise NotAvailable(f"{name} has no commit {commit} here, only {here}", f"specdec rm {name}")
    blobs = {file.blob_path for revision in going for file in revision.files}
    outside = [path for path in blobs if not _is_inside(name, path)]
    if not staying and (repo is None or outside):
        whole = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return Removal(name, (), (), whole)
    if outside:  # the library would remove what a link leads to, wherever that is
        raise NotAvailable(f"{outside[0].name} of {name} lies outside the model cache", f"look at {outside[0]}")
    freed_bytes = cache.delete_revisions(*(revision.commit_hash for revision in going)).expected_freed_size
    parts = [part.size_on_disk for part in cache.incomplete_files if part.file_path.parents[1].name == folder.name]
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
            shutil.rmtree(repository(plan.name))
            return plan.freed_bytes
        strategy = _scan(plan.name)[0].delete_revisions(*plan.commits)
        strategy.execute()
        forget(plan.name, plan.commits)
    stuck = sorted(path for path in strategy.repos | strategy.snapshots | strategy.blobs if os.path.lexists(path))
    if stuck:
        raise NotAvailable(
            f"{plan.name} could not be removed: {stuck[0]} is still there", f"check who owns {stuck[0].parent}"
        )
    return plan.freed_bytes


def _is_inside(name: str, path: Path) -> bool:
    """Whether `path` leads into this model's folder, or into the cache's store of Xet files beside it."""
    roots = repository(name).resolve(), (cache_folder() / "blobs").resolve()
    return any(path.resolve().is_relative_to(root) for root in roots)


def _scan(name: str) -> tuple[HFCacheInfo, CachedRepoInfo | None]:
    """The cache, with this repository alone: the library removes a commit from the first repository that has it.

    None where the repository's folder is broken.
    """
    cache = huggingface_hub.scan_cache_dir(cache_folder())
    found = [repo for repo in cache.repos if repo.repo_type == "model" and repo.repo_id == name]
    return replace(cache, repos=frozenset(found)), found[0] if found else None
