"""Results as JSON. Law: a result that was written reads back as the same value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specdec_cli import jsonfile
from specdec_cli.bench.result import SCHEMA, BenchResult
from specdec_cli.errors import UsageError


def to_dict(result: BenchResult) -> dict[str, Any]:
    """The JSON object of a bench."""
    return {"specdec": "bench", **asdict(result)}


def from_dict(values: Any) -> BenchResult:
    """The result that `to_dict` wrote, also after a trip through JSON; unknown fields are ignored.

    Raises: ValueError for anything else; it names the first wrong field.
    """
    if not isinstance(values, Mapping) or values.get("specdec") != "bench":
        raise ValueError("not a specdec bench result")
    if values.get("schema") != SCHEMA:
        raise ValueError(f"bench schema {values.get('schema')}, and this specdec reads {SCHEMA}")
    try:
        return TypeAdapter(BenchResult).validate_python({k: v for k, v in values.items() if k != "specdec"})
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def read_result(path: Path) -> BenchResult:
    """The result in a file that `--export FILE.json` wrote.

    Raises: UsageError for any other file, and for one that cannot be read.
    """
    hint = "make one with: specdec bench --export FILE.json"
    try:
        return from_dict(jsonfile.parse(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:  # no UTF-8, no JSON, or no bench
        raise UsageError(f"{path} is no bench result: {error}", hint) from error
