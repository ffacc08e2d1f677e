"""Whose caches they are. Caches of another fingerprint are never used; whatever they depend on is part of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specdec_cli.engine import device
from specdec_cli.models.checkpoint import Checkpoint
from specdec_cli.models.heads import HeadFiles
from specdec_cli.session.slot import Slot

# Of how caches are kept in files, and of what specdec's own caches mean: another number is another fingerprint.
SCHEMA = 2


def fingerprint_of(slot: Slot, target: Checkpoint, draft: Checkpoint | None, head: HeadFiles | None) -> str:
    """Of caches like those of `slot`, whose models are in these files: their places, sizes and dates count.

    So do the versions of what computes, the types that it computes in, and who drafts. Raises: OSError.
    """
    digest = hashlib.sha256()
    drafted = draft if slot.draft else None
    for path in [*_files(target), *_files(drafted), *(head.files if slot.head and head else ())]:
        digest.update(identity_of(path).encode())
    kept = [f"{model.dtype} {model.network.kv} {model.cache_kinds}" for model in (slot.target, slot.draft) if model]
    agreement = slot.head.head.agreement if slot.head else None
    drafter = slot.head.head.kind if slot.head else f"model {slot.draft is not None}"
    versions = device.versions()
    where = f"mlx {versions['mlx']}, mlx-lm {versions['mlx-lm']}, {device.backend()}"
    digest.update(f"{SCHEMA}\n{kept}\n{drafter} {agreement and agreement.zero_centred}\n{where}".encode())
    return digest.hexdigest()


def _files(checkpoint: Checkpoint | None) -> list[Path]:
    if checkpoint is None:
        return []
    return [checkpoint.folder / "config.json", *checkpoint.weights]


def identity_of(path: Path) -> str:
    """A line that changes with the file's place, size or date. Raises: OSError."""
    real = path.resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}\n"
