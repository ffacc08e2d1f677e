"""TOML files that people write: read with the lines of their keys, edited so that comments and order stay."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_cli.core.errors import SpecdecError, UsageError, not_written, reason
from specdec_cli.core.jsonfile import locked, replace_text
from specdec_cli.core.readfile import read_file
from specdec_cli.core.textfile import decode_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file as it was read."""

    path: Path
    text: str
    values: dict[str, Any]

    def place(self, *location: str) -> str:
        """`file:line` of a key or of what is in it, else of the innermost of its tables that has a line."""
        return f"{self.path}:{_line_of(self.text, location)}"


def read_toml(path: Path) -> TomlFile:
    """Raises: UsageError for what cannot be read, and with the line for what is no TOML."""
    try:
        text = decode_text(read_file(path))
        return TomlFile(path, text, tomllib.loads(text))
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read: {told}", "correct or remove that file") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, too
        raise UsageError(f"{path} is not valid TOML: {error}", f"correct that line in {path}") from error


def _line_of(text: str, location: tuple[str, ...]) -> int:
    """1-based; 1 if neither the key nor any of its tables has a line."""
    whole, table, best, found = ".".join(location), "", 0, 1
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"[\s'\"]", "", line.partition("#")[0])
        if words.startswith("["):
            path = table = words.strip("[]")
        else:
            path = f"{table}.{words.partition('=')[0]}".lstrip(".")
        if f"{path}.".startswith(f"{whole}."):
            return number
        if best < len(path) and f"{whole}.".startswith(f"{path}."):
            best, found = len(path), number
    return found


@contextmanager
def edit_toml(path: Path, new: str) -> Iterator[TOMLDocument]:
    """The document, written back on leaving; where there is no file, `new`. It is replaced whole or not at all.

    No other specdec reads it to change it meanwhile: none loses an entry.
    Raises: UsageError for a file that is no TOML, SpecdecError where it cannot be locked or written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    real = Path(os.path.realpath(path))  # people keep configuration files elsewhere and link to them
    try:
        with locked(real.parent):
            document = tomlkit.parse(read_toml(path).text if path.exists() else new)
            yield document
            replace_text(real, tomlkit.dumps(document))
    except BlockingIOError as error:
        raise SpecdecError(
            f"{path} is being changed by another specdec", "wait for it, then run the same command again"
        ) from error
    except OSError as error:
        told = f"{path} cannot be written: {error.strerror}"
        raise not_written(error, told, "check the folder's permissions", "free some space first") from error
    except (TOMLKitError, RecursionError, UnicodeEncodeError) as error:
        raise UsageError(f"{path} cannot be changed: {reason(error)}", f"edit {path} yourself") from error
