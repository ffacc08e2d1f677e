"""Files that a command writes beside its answer. Law: a file that cannot be written is two lines, and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

from specdec_cli.errors import UsageError


def write_export(option: str, file: Path, text: str, *, shown: bool, plain: bool) -> None:
    """Write `text` to `file`, as `option` asked, and say so where `shown`.

    Raises: UsageError for a file that cannot be written.
    """
    from specdec_cli.ui.display import print_notice

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "name a file in a folder that exists and can be written to"
        raise UsageError(f"{option} {file} cannot be written: {error.strerror}", hint) from error
    if shown:
        print_notice(sys.stderr, f"wrote {file}", plain)
