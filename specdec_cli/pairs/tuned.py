"""What `specdec tune` made: a folder each in the user's data folder, bound to the weights that it was made for."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import Refused, UsageError
from specdec_cli.core.readfile import open_file, read_file
from specdec_cli.core.safetensors import read_header
from specdec_cli.models.checkpoint import ADAPTER, Checkpoint
from specdec_cli.pairs.pair import Pair

RECORD = "tuned.json"
# How the folders begin in which `specdec tune` works; a killed one leaves its own.
WORKING = ".training-"
END_BYTES = 1 << 16


def tuned_folder() -> Path:
    """Where all of them are."""
    return platformdirs.user_data_path("specdec") / "tuned"


def folder_of(pair: Pair) -> Path | None:
    """The tuned folder that `pair` drafts with, if any."""
    names = (name for name in (pair.draft_adapter, pair.draft) if name)
    return next((Path(name) for name in names if Path(name).parent == tuned_folder()), None)


def folder_named(name: str, pair: Pair | None) -> Path | None:
    """The tuned folder of `pair`, or where there is no such pair, of that `name`."""
    if pair is not None:
        return folder_of(pair)
    folder, working = tuned_folder() / name, tuned_folder() / f".{name}"
    folder = working if name.startswith(WORKING[1:]) and working.is_dir() else folder
    return folder if folder.parent == tuned_folder() and name[0] != "." and folder.is_dir() else None


def fingerprint(checkpoint: Checkpoint) -> str:
    """sha256 of each weight file's size, header and last bytes; all bytes would take as long as loading."""
    digest, adapter = hashlib.sha256(), [checkpoint.adapter / ADAPTER] if checkpoint.adapter else []
    for path in (*checkpoint.weights, *adapter):
        header, size = read_header(path), path.stat().st_size
        shapes = sorted((name, one.dtype, one.shape) for name, one in header.tensors.items())
        digest.update(f"{size} {shapes}".encode())
        with open_file(path) as stream:
            stream.seek(max(size - END_BYTES, 0))
            digest.update(stream.read())
    return digest.hexdigest()


def fingerprints(target: Checkpoint, draft: Checkpoint | None) -> dict[str, str]:
    """What something tuned is bound to: the target's weights and tokenizer, and the draft's weights if it has any."""
    tokenizer = target.folder / "tokenizer.json"
    found = {"target": fingerprint(target)}
    if tokenizer.is_file():
        found["tokenizer"] = hashlib.sha256(read_file(tokenizer)).hexdigest()
    return found if draft is None else {**found, "draft": fingerprint(draft)}


def write_record(folder: Path, values: dict[str, Any]) -> None:
    """Readable only by its owner. Raises: OSError."""
    (folder / RECORD).touch(0o600)
    (folder / RECORD).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def require_bound(folder: Path, target: Checkpoint, draft: Checkpoint | None) -> None:
    """Raises: Refused where what is in `folder` was tuned for other weights than these."""
    bound = jsonfile.read_or_empty(folder / RECORD).get("sha256")
    if not isinstance(bound, dict) or not isinstance(bound.get("target"), str):
        raise Refused(
            f"{folder / RECORD} does not say which weights {folder.name} was tuned for",
            f"specdec rm {folder.name} removes it; specdec tune makes another",
        )
    found = fingerprints(target, draft)
    if other := next((part for part in bound if part in found and bound[part] != found[part]), ""):
        name = draft.name if draft and other == "draft" else target.name
        had, has = str(bound[other])[:12], found[other][:12]
        raise Refused(
            f"{folder.name} was tuned for another {other}: sha256 {had}, and {name} has {has}",
            f"specdec rm {folder.name} removes it; specdec tune makes another",
        )


def killed_trainings() -> dict[Path, int]:
    """The folders, with their bytes, of trainings that were killed."""
    found = dict[Path, int]()
    for folder in sorted(tuned_folder().glob(f"{WORKING}*")):
        with suppress(BlockingIOError), jsonfile.locked(folder, patience_seconds=0.0):
            found[folder] = size_bytes(folder)
    return found


def size_bytes(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove(folder: Path) -> int:
    """Delete it; returns the bytes freed. Raises: UsageError where something is trained in it, OSError."""
    freed = size_bytes(folder)
    try:
        with jsonfile.locked(folder, patience_seconds=0.0):
            shutil.rmtree(folder)
    except BlockingIOError as error:
        raise UsageError(f"{folder} is in use: something is trained in it", "wait for it, or end it") from error
    return freed
