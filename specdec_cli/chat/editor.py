"""A message written in the user's editor. Law: the file is private, and removed afterwards."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from specdec_cli.errors import SpecdecError, UsageError


def compose(text: str) -> str:
    """The text saved in $VISUAL or $EDITOR, which starts with `text`; without the newline that editors add.

    Raises: UsageError without a terminal, SpecdecError for an editor that cannot be started or fails.
    """
    if not sys.stdin.isatty():
        raise UsageError("/edit needs a terminal", 'put the message on a line of its own, or between two lines of """')
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    descriptor, name = tempfile.mkstemp(prefix="specdec-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        code = subprocess.call([*shlex.split(editor), name])
        if code:
            raise SpecdecError(f"{editor} ended with code {code}", "nothing was sent; EDITOR names the editor")
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    except OSError as error:
        raise SpecdecError(f"{editor} cannot be started: {error.strerror}", "EDITOR=nano specdec chat") from error
    finally:
        path.unlink(missing_ok=True)
