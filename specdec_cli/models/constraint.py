"""Constraints as they are asked for: typed on a line, or read from a file. Law: what is no such thing is refused here.

Whether a model could keep one is `grammar.require_possible`'s to say.
"""

from __future__ import annotations

from pathlib import Path

from specdec_cli.errors import UsageError
from specdec_cli.request import Constraint, ShapeKind


def typed(kind: ShapeKind, value: str, option: str) -> Constraint:
    """What `value` says after `option`, such as --schema: a regular expression itself, a schema itself or its file, and
    a grammar's file.

    Raises: UsageError for no value at all, and for a file that cannot be read as UTF-8.
    """
    if not value.strip():
        raise UsageError(f"{option} is empty", "leave it out, or say what the answer must be")
    inline = kind == "regex" or (kind == "schema" and value.lstrip().startswith(("{", "[")))
    return Constraint(kind, value if inline else _text(kind, Path(value).expanduser(), option))


def _text(kind: str, path: Path, option: str) -> str:
    hint = "name a file"
    if kind == "schema":
        hint = f'give a file, or the JSON itself: {option} \'{{"type": "object"}}\''
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise UsageError(f"{option} {path} is not UTF-8", hint) from error
