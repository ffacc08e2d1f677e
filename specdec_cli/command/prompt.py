"""The text that a command is given: piped, in a file, or as an argument."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from specdec_cli.core.errors import UsageError
from specdec_cli.core.textfile import text_of_bytes, text_of_file
from specdec_cli.system.link import DESCRIPTOR


def read_prompt(argument: str | None, file: Path | None = None, command: str = "specdec run") -> str:
    """Piped stdin first, then the text of `file`, then PROMPT, on lines of their own; the hints are for `command`.

    Raises: UsageError if nothing is there, or if what is there cannot be read as UTF-8.
    """
    # mlx.launch gives each rank an input that never ends.
    watched = sys.stdin.isatty() or (argument is not None and "MLX_RANK" in os.environ and DESCRIPTOR not in os.environ)
    if watched and argument is None and file is None:
        raise UsageError("there is no prompt", f"{command} 'Return the lines of a file.', or talk: specdec chat")
    piped = b"" if watched else sys.stdin.buffer.read()
    text = "\n".join(part for part in (text_of_bytes(piped, "stdin"), file_text(file), argument or "") if part)
    if not text.strip():
        raise UsageError("the prompt is empty: 0 characters", f"give some: {command} 'Return the lines of a file.'")
    return text


def file_text(file: Path | None, option: str = "--file", hint: str = "name a file with the prompt") -> str:
    return "" if file is None else text_of_file(file, f"{option} {file}", hint)
