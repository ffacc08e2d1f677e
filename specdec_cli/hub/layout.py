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
from specdec_cli.hub.names import DIGEST, require_digest, require_revision


def cache_folder() -> Path:
    """The folder of the shared Hugging Face cache on this machine."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def repository(name: str) -> Path:
    """The cache's folder for one repository, which need not exist."""
    from huggingface_hub.file_download import repo_folder_name

    return cache_folder() / repo_folder_name(repo_id=name, repo_type="model")


def snapshot_folder(name: str, commit: str) -> Path:
    return repository(name) / "snapshots" / commit


def blob_path(name: str, path: str, digest: str) -> Path:
    """The place of the bytes of the file `path`. Raises: NotAvailable for a value that is no digest."""
    return repository(name) / "blobs" / require_digest(name, path, digest)


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


def require_inside(name: str, path: Path) -> Path:
    """The path. Raises: NotAvailable where it leads out of the cache."""
    if not is_inside(name, path):
        raise NotAvailable(
            f"{path.name} of {name} lies outside the model cache: {path} leads to {path.resolve()}",
            f"remove {path}, then the same command again",
        )
    return path


def blob_name(pointer: Path) -> str | None:
    """The digest that names the blob of a snapshot's file; None where the cache has no symbolic links."""
    # Only the first link is read: a blob may itself be a link into the cache's store of Xet files.
    name = pointer.readlink().name if pointer.is_symlink() else ""
    return name if DIGEST.fullmatch(name) else None


def write_ref(name: str, revision: str, commit: str) -> None:
    """Point `revision` (a branch or tag) to `commit`. Raises: OSError, NotAvailable."""
    if revision == commit:
        return
    require_revision(name, revision)
    path = repository(name) / "refs" / revision
    if path.is_file() and path.read_text(encoding="utf-8") == commit:
        return  # nothing to write, so a read-only cache stays usable
    path.parent.mkdir(parents=True, exist_ok=True)
    require_inside(name, path.parent)
    replace_text(repository(name), path, commit)


def replace_text(folder: Path, path: Path, text: str) -> None:
    """Write `text` to `path` completely or not at all. The draft is in `folder`: in refs/ every file is a revision.

    Raises: OSError.
    """
    draft = folder / f".draft-{uuid.uuid4().hex}"
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def size_text(count: int) -> str:
    """Bytes in decimal units: 4.3 GB, 12.0 MB, 3.4 kB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
