"""A model in a Hugging Face cache, as a pull or another tool leaves it, made without a Hub."""

from __future__ import annotations

import os
from pathlib import Path

from fakes.hub_server import Blob
from specdec_cli.hub.cached import RemoteFile, write_record

NAME = "org/tiny"
COMMIT, OTHER_COMMIT = "c" * 40, "d" * 40
WEIGHTS = "model.safetensors"
FILES = {"config.json": b"{}", "tokenizer.json": b'{"model": {}}', WEIGHTS: b"w" * 1000}
PULL = f"specdec pull --target {NAME}"


def place(cache: Path, files: dict[str, bytes] = FILES, *, compared: bool = True) -> Path:
    """The snapshot's folder: links to blobs named by their digests. `compared`: with the record of a pull."""
    repository = cache / "models--org--tiny"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        blob = repository / "blobs" / Blob(path, data).etag
        blob.write_bytes(data)
        pointer = snapshot / path
        pointer.parent.mkdir(exist_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    (repository / "refs" / "main").write_text(COMMIT)
    if compared:
        write_record(NAME, COMMIT, [RemoteFile(p, len(data), Blob(p, data).etag) for p, data in files.items()])
    return snapshot
