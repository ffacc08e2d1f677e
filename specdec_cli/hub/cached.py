"""From a model's name to its folder. Law: no network call, and never half a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.failures import explained
from specdec_cli.hub.layout import COMMIT, HUB_ID, WEIGHTS, cache_folder, repository, snapshot_folder, wanted

SHIPPED = "specdec:"
PACKAGE = Path(__file__).parents[1]
PART = re.compile(r"(model-)(\d+)-of-(\d+)(\.safetensors)")


def locate(name: str, revision: str | None = None) -> Path:
    """The folder of a shipped model, a local folder, or a Hub id in the local Hugging Face cache.

    Raises: NotAvailable if it is not here, or not all of it.
    """
    if name.startswith(SHIPPED):
        return PACKAGE / name.removeprefix(SHIPPED)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise NotAvailable(f"{name} is a file, and a model is a folder", "give the folder that holds config.json")
    require_hub_id(name)
    return cached_folder(name, revision)


def require_hub_id(name: str) -> None:
    """Raises: NotAvailable unless `name` has the shape of a Hub id."""
    if not HUB_ID.fullmatch(name):
        raise NotAvailable(f"no folder {name} here", "check the path; a Hub id looks like organisation/name")


def cached_folder(name: str, revision: str | None = None) -> Path:
    """The complete snapshot of `name` at `revision` (None: main) in the cache.

    Raises: NotAvailable.
    """
    pull = f"specdec pull --target {name}" + (f" --target-revision {revision}" if revision else "")
    with explained(name, revision):
        folder = _snapshot(name, revision)
        missing = missing_files(name, folder) if folder else ()
    if folder is None:
        at = f" at revision {revision}" if revision else ""
        raise NotAvailable(f"{name}{at} is neither a folder here nor in the model cache", pull)
    if missing:
        raise NotAvailable(f"{name} is only partly here: {len(missing)} files lack, first {missing[0]}", pull)
    return folder


def cached_models() -> tuple[str, ...]:
    """Hub ids with anything in the cache, sorted; whether one is whole `locate` tells."""
    folders = cache_folder().glob("models--*--*")
    return tuple(sorted(folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders))


def missing_files(name: str, folder: Path) -> tuple[str, ...]:
    """Files of the model that this snapshot of `name` lacks, sorted."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        tree = get_cached_repo_tree(name, revision=folder.name)
        expected = {file.path for file in tree if wanted(file.path)}
    except CachedRepoTreeNotFoundError:
        expected = set()  # only some tools leave a listing; ours, too, leaves none
    expected |= _implied(folder)
    return tuple(sorted(path for path in expected if not (folder / path).is_file()))


def _snapshot(name: str, revision: str | None) -> Path | None:
    """The snapshot a revision means here; without one main's, else the only complete one (pulled by its commit)."""
    if revision is not None and COMMIT.fullmatch(revision):
        commit = revision
    else:
        ref = repository(name) / "refs" / (revision or "main")
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
    if commit and snapshot_folder(name, commit).is_dir():
        return snapshot_folder(name, commit)
    if revision is not None or commit:
        return None
    whole = [folder for folder in repository(name).glob("snapshots/*") if not missing_files(name, folder)]
    return whole[0] if len(whole) == 1 else None


def _implied(folder: Path) -> set[str]:
    """What the files here say must be here as well: weights come last in a pull, so they stand for all of it."""
    weights = {path.name for path in folder.glob(WEIGHTS)}
    expected = {"config.json"} | weights
    for match in filter(None, map(PART.fullmatch, weights)):
        stem, digits, count, suffix = match.groups()
        expected |= {f"{stem}{i:0{len(digits)}}-of-{count}{suffix}" for i in range(1, int(count) + 1)}
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        expected |= _shards(index)
    elif not weights and not any(path.suffix in {".bin", ".pt", ".pth", ".gguf"} for path in folder.glob("*")):
        expected.add("model.safetensors")
    return expected


def _shards(index: Path) -> set[str]:
    """File names in a weight index; none where it is unreadable, which the checkpoint reports."""
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {str(shard) for shard in weight_map.values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()
