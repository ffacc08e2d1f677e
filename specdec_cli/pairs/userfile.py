"""Edits of the user's models.toml. Law: comments and order survive; the file is replaced whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError

from specdec_cli.errors import SpecdecError, UsageError
from specdec_cli.kinds import HEAD
from specdec_cli.locking import locked
from specdec_cli.pairs.pair import Pair

# Keys that describe these two models, and not the ones that replace them.
OF_THE_MODELS = ("target_bytes", "draft_bytes", "min_memory_gb", "verified", "measured")


def set_default(path: Path, name: str | None) -> None:
    """Makes `name` the default pair; None: the file names none."""
    with _editing(path) as document:
        if name is not None:
            document["default_pair"] = name
        else:
            document.pop("default_pair", None)


def add_pair(path: Path, pair: Pair) -> None:
    """Adds or replaces one pair; other keys of its table stay. A new table has all that is known of `pair`."""
    with _editing(path) as document:
        pairs = document.setdefault("pairs", tomlkit.table(is_super_table=True))
        table = pairs.setdefault(pair.name, _entry(pair))
        values = {
            "target": pair.target,
            **_drafting(pair),
            "target_revision": pair.target_revision,
            "draft_revision": pair.draft_revision,
            "k": pair.k,
        }
        if any(table.get(key) != values[key] for key in ("target", "draft", "head_from")):
            for key in OF_THE_MODELS:
                table.pop(key, None)
        for key, value in values.items():
            if value is not None:
                table[key] = value
            else:
                table.pop(key, None)


def remove_pair(path: Path, name: str) -> None:
    """Takes the entry out; the default pair, if it is this one, stays for the caller to change."""
    with _editing(path) as document:
        pairs = document["pairs"]
        del pairs[name]
        if not pairs:
            del document["pairs"]


def record_measured(path: Path, pair: Pair, k: int | Literal["auto"], measured: Mapping[str, Any]) -> None:
    """Sets K and drafter of `pair`, and adds `measured` to its measurements in place of an older one of that chip.

    A packaged pair is first copied into the user's file, since an entry there replaces the packaged one whole.
    """
    with _editing(path) as document:
        pairs = document.setdefault("pairs", tomlkit.table(is_super_table=True))
        table = pairs.setdefault(pair.name, _entry(pair))
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


@contextmanager
def _editing(path: Path) -> Iterator[tomlkit.TOMLDocument]:
    """The document, written back on leaving. No other specdec reads it to change it meanwhile: none loses an entry.

    Raises: UsageError for a file that is no TOML, SpecdecError where it cannot be locked or written.
    """
    real = path.resolve()  # people keep configuration files elsewhere and link to them
    with _naming(path), locked(real.parent):
        document = _read(path)
        yield document
        _write(real, document)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Failures of the system here are about `path`."""
    try:
        yield
    except BlockingIOError as error:
        raise SpecdecError(
            f"{path} is being changed by another specdec", "wait for it, then the same command again"
        ) from error
    except OSError as error:
        raise SpecdecError(f"{path} cannot be written: {error.strerror}", "check the folder's permissions") from error


def _entry(pair: Pair) -> tomlkit.items.Table:
    """A table of all that is known of `pair`, defaults left out."""
    table = tomlkit.table()
    for field in fields(pair):
        values = _drafting(pair) if field.name == "draft" else {field.name: getattr(pair, field.name)}
        for key, value in values.items():
            if key not in ("name", "source", "k") and value not in (None, field.default):
                table[key] = value
    return table


def _drafting(pair: Pair) -> dict[str, str | None]:
    """What the file says of the pair's draft: a head out of a repository has a key of its own."""
    head = pair.draft is not None and pair.draft.startswith(HEAD)
    return {"draft": None if head else pair.draft, "head_from": str(pair.draft).removeprefix(HEAD) if head else None}


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
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply", "correct or remove that file") from error


def _write(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Writes a temporary file and renames it, so that an interruption leaves the old file. Raises: OSError."""
    text = tomlkit.dumps(document)
    draft = None
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            shutil.copymode(path, draft)
        Path(draft).replace(path)
    except OSError:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        raise
