"""Files that a command writes beside its answer. A file that cannot be written is two lines, and exit code 2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from specdec_cli.command.command import notify
from specdec_cli.core.errors import UsageError

WRITABLE = "name a file in a folder that exists and can be written to"


def require_writable(option: str, files: Sequence[Path], endings: Sequence[str]) -> None:
    """Before any model work.

    Raises: UsageError for a file whose name ends in none of `endings`, that is in no folder, or may not be written.
    """
    for file in files:
        if file.suffix.lower() not in endings:
            hint = f"known: {', '.join(endings)}; for the text > FILE, for JSON --json > FILE"
            raise UsageError(f"{option} {file} ends in {file.suffix or 'nothing'}", hint)
        if not file.parent.is_dir() or file.is_dir():
            problem = "is a folder" if file.is_dir() else f"is in {file.parent}, and there is no such folder"
            raise UsageError(f"{option} {file} {problem}", "name a file in a folder that exists")
        if not os.access(place := file if file.exists() else file.parent, os.W_OK):
            raise UsageError(f"{option} {file} cannot be written: {place} may not be changed", WRITABLE)


def write_export(option: str, file: Path, text: str, *, shown: bool, plain: bool) -> None:
    """Write `text` to `file`, as `option` asked, and say so where `shown`.

    Raises: UsageError for a file that cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {file} cannot be written: {error.strerror}", WRITABLE) from error
    if shown:
        notify(f"wrote {file}", plain)
