"""Heads taken out of a target's original repository, in specdec's own data folder. Law: a head is kept whole or not at
all, with the repository, commit and digests it came from.

A draft named `head:ORGANISATION/NAME` is the head kept of that repository.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from specdec_cli import jsonfile
from specdec_cli.errors import NotAvailable
from specdec_cli.hub.download import Progress, silent
from specdec_cli.hub.failures import explained
from specdec_cli.hub.kept import CONFIG, SOURCE, WEIGHTS, head_folder
from specdec_cli.hub.snapshot import Snapshot
from specdec_cli.hub.tensors import RemoteTensor, fetch_tensors, read_whole


def kept_commit(name: str) -> str | None:
    """The commit that the kept head is of, None if none is kept or its record is damaged."""
    commit = jsonfile.remembered(head_folder(name) / SOURCE).get("commit")
    return commit if isinstance(commit, str) else None


def read_config(snapshot: Snapshot) -> bytes:
    """config.json of a repository of which nothing else is wanted. Raises: NotAvailable if it has none."""
    file = next((file for file in snapshot.files if file.path == CONFIG), None)
    if file is None:
        raise NotAvailable(f"{snapshot.name} has no {CONFIG}", "name the repository of a model")
    return read_whole(snapshot, file)


def keep_head(
    snapshot: Snapshot, config: bytes, tensors: Sequence[RemoteTensor], layout: str, progress: Progress = silent
) -> Path:
    """Fetch `tensors` of `snapshot`, and keep them in place of what was kept of that repository.

    `layout` is `pt` for norms as original repositories store them, else `mlx`.
    Raises: NotAvailable, DoesNotFit; what was kept before then stays.
    """
    place = head_folder(snapshot.name)
    draft = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    with explained(snapshot.name):
        try:
            fetch_tensors(snapshot, tensors, draft / WEIGHTS, progress, layout)
            (draft / CONFIG).write_bytes(config)
            digests = {name: _sha256(draft / name) for name in (WEIGHTS, CONFIG)}
            source = {"repository": snapshot.name, "commit": snapshot.commit, "sha256": digests}
            (draft / SOURCE).write_text(json.dumps(source, indent=1), encoding="utf-8")
            remove_head(snapshot.name)
            draft.replace(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return place


def head_bytes(name: str) -> int:
    """Bytes of the kept head, 0 if none is."""
    folder = head_folder(name)
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def remove_head(name: str) -> int:
    """Remove the kept head; returns the bytes freed. Raises: NotAvailable where it cannot be removed."""
    folder, freed = head_folder(name), head_bytes(name)
    with explained(name):
        if folder.is_dir():
            shutil.rmtree(folder)
    return freed


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
