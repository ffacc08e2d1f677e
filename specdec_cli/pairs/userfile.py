"""Edits of the user's models.toml. Law: comments and order survive; the file is replaced whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.pairs.pair import Pair

# Keys that describe these two models, and not the ones that replace them.
OF_THE_MODELS = ("target_bytes", "draft_bytes", "min_memory_gb", "verified", "measured")


def set_default(path: Path, name: str) -> None:
    """Makes `name` the default pair."""
    document = _read(path)
    document["default_pair"] = name
    _write(path, document)


def add_pair(path: Path, pair: Pair) -> None:
    """Adds or replaces one pair; other keys of its table stay."""
    document = _read(path)
    pairs = document.setdefault("pairs", tomlkit.table(is_super_table=True))
    table = pairs.setdefault(pair.name, tomlkit.table())
    values = {
        "target": pair.target,
        "draft": pair.draft,
        "target_revision": pair.target_revision,
        "draft_revision": pair.draft_revision,
        "k": pair.k,
    }
    if (table.get("target"), table.get("draft")) != (pair.target, pair.draft):
        for key in OF_THE_MODELS:
            table.pop(key, None)
    for key, value in values.items():
        if value is not None:
            table[key] = value
        else:
            table.pop(key, None)
    _write(path, document)


def record_measured(path: Path, pair: Pair, k: int | Literal["auto"], measured: Mapping[str, Any]) -> None:
    """Sets K and drafter of `pair`, and adds `measured` to its measurements in place of an older one of that chip.

    A packaged pair is first copied into the user's file, since an entry there replaces the packaged one whole.
    """
    document = _read(path)
    pairs = document.setdefault("pairs", tomlkit.table(is_super_table=True))
    if pair.name not in pairs:
        known = {f.name: getattr(pair, f.name) for f in fields(pair) if f.name not in ("name", "source", "k")}
        pairs[pair.name] = tomlkit.table()
        pairs[pair.name].update({key: value for key, value in known.items() if value not in (None, "")})
    table = pairs[pair.name]
    table["k"] = k
    if "drafter" in measured:
        table["drafter"] = measured["drafter"]
    others = [dict(entry) for entry in table.get("measured", []) if entry.get("chip") != measured["chip"]]
    entries = tomlkit.array().multiline(len(others) > 0)
    for entry in [*others, measured]:
        inline = tomlkit.inline_table()
        inline.update({key: value for key, value in entry.items() if value is not None})
        entries.append(inline)
    table["measured"] = entries
    _write(path, document)


def _read(path: Path) -> tomlkit.TOMLDocument:
    if not path.is_file():
        document = tomlkit.document()
        document.add(tomlkit.comment("Your pairs; they replace packaged ones of the same name."))
        document["schema_version"] = 1
        return document
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", f"correct that line in {path}") from error


def _write(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Writes a temporary file and renames it, so that an interruption leaves the old file."""
    text = tomlkit.dumps(document)
    real = path.resolve()  # people keep configuration files elsewhere and link to them
    draft = None
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=real.parent, prefix=real.name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if real.exists():
            shutil.copymode(real, draft)
        Path(draft).replace(real)
    except OSError as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        raise SpecdecError(f"{path} cannot be written: {error.strerror}", "check the folder's permissions") from error
