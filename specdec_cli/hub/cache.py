"""The places of a model in the shared Hugging Face cache. Law: nothing is read, written or removed outside of it.

models--org--name/
    blobs/<sha256 or git sha-1>     the bytes
    snapshots/<commit>/<file>       a link to a blob
    refs/<revision>                 a commit
    .specdec/<commit>.json          the files that a pull has compared
"""

from __future__ import annotations

import uuid
from pathlib import Path

from specdec_cli.errors import NotAvailable
from specdec_cli.hub.names import require_digest, same_model


def cache_folder() -> Path:
    """The folder of the shared Hugging Face cache on this machine."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def repository(name: str) -> Path:
    """The cache's folder for one repository, which need not exist."""
    return cache_folder() / f"models--{name.replace('/', '--')}"


def snapshot_folder(name: str, commit: str) -> Path:
    return repository(name) / "snapshots" / commit


def blob_path(name: str, path: str, digest: str) -> Path:
    """The place of the bytes of the file `path`. Raises: NotAvailable for a value that is no digest."""
    return repository(name) / "blobs" / require_digest(name, path, digest)


def cached_models() -> tuple[str, ...]:
    """Hub ids with anything in the cache, sorted; they may be incomplete, which `locate` checks."""
    folders = cache_folder().glob("models--*--*")
    return tuple(sorted(folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders))


def spelled_here(name: str) -> str:
    """`name` as its folder in the cache spells it, if it is there; an exact match comes first.

    The folder is looked for among all names: a Mac's disk finds it under any spelling.
    """
    names = cached_models()
    return name if name in names else next((known for known in names if same_model(known, name)), name)


def is_inside(name: str, path: Path) -> bool:
    """Whether `path`, with every link followed, is in this model's folder or in the cache's store of Xet files.

    The model's folder itself may be a link, because people keep big models on another disk.
    """
    try:
        real = path.resolve()
        roots = repository(name).resolve(), (cache_folder() / "blobs").resolve()
    except (OSError, RuntimeError):  # a circle of links
        return False
    return any(real.is_relative_to(root) for root in roots)


def require_inside(name: str, *paths: Path) -> None:
    """Raises: NotAvailable where one of `paths` leads out of the cache."""
    for path in paths:
        if not is_inside(name, path):
            raise NotAvailable(
                f"{path.name} of {name} lies outside the model cache: {path} leads to {path.resolve()}",
                f"remove {path}, then the same command again",
            )


def replace_text(name: str, path: Path, text: str) -> None:
    """Write `text` to `path`, a file about the model `name`, whole or not at all. One that holds it is left alone.

    The draft is in the model's own folder: in refs/ every file is a revision. Raises: OSError, NotAvailable.
    """
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return  # so a read-only cache stays usable
    path.parent.mkdir(parents=True, exist_ok=True)
    require_inside(name, path.parent)
    draft = repository(name) / f".draft-{uuid.uuid4().hex}"
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
