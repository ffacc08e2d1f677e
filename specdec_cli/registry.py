"""models.toml -> Registry . Law: an unknown key is an error with file, line and the nearest key."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specdec_cli.errors import UsageError
from specdec_cli.pairs import DEFAULT_K, Pair, Registry, nearest


class _Entry(BaseModel):
    """One table of models.toml; sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    target: str
    draft: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    target_bytes: int | None = Field(None, ge=0)
    draft_bytes: int | None = Field(None, ge=0)
    k: int | Literal["auto"] = DEFAULT_K
    note: str = ""
    min_memory_gb: float | None = Field(None, gt=0)
    verified: bool = False
    measured: list[dict[str, Any]] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_version: Literal[1]
    default_pair: str | None = None
    pairs: dict[str, _Entry] = {}


def packaged_file() -> Path:
    """models.toml inside the wheel, or at the top of the checkout."""
    inside = Path(__file__).with_name("models.toml")
    return inside if inside.is_file() else Path(__file__).parent.parent / "models.toml"


def user_file() -> Path:
    """The user's models.toml: SPECDEC_MODELS, else the platform's configuration folder."""
    named = os.environ.get("SPECDEC_MODELS")
    return Path(named) if named else platformdirs.user_config_path("specdec") / "models.toml"


def load_registry(packaged: Path, users: Path) -> Registry:
    """Both files, the user's entries replacing packaged ones of the same name; the user's file may be absent.

    Raises: UsageError for a file that cannot be understood.
    """
    ours = read_registry(packaged, "packaged")
    if not users.is_file():
        return ours
    theirs = read_registry(users, "yours")
    registry = Registry({**ours.pairs, **theirs.pairs}, theirs.default_pair or ours.default_pair)
    if registry.default_pair is not None:
        registry.find(registry.default_pair)
    return registry


def read_registry(path: Path, source: str) -> Registry:
    """One models.toml.

    Raises: UsageError with file, line and the nearest known key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "mend or remove that file") from error
    try:
        parsed = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", f"mend that line in {path}") from error
    except ValidationError as error:
        raise _explain(path, text, error) from error
    pairs = {name: _pair(name, entry, source) for name, entry in parsed.pairs.items()}
    return Registry(pairs, parsed.default_pair)


def _pair(name: str, entry: _Entry, source: str) -> Pair:
    values = entry.model_dump(exclude={"k", "measured"})
    return Pair(name=name, k=entry.k if isinstance(entry.k, int) else DEFAULT_K, source=source, **values)


def _explain(path: Path, text: str, error: ValidationError) -> UsageError:
    """The first complaint as file:line, both values and the nearest key."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    line = _line_of(text, location)
    known = _Entry.model_fields if location[0] == "pairs" and len(location) > 2 else _File.model_fields
    if first["type"] == "extra_forbidden":
        return UsageError(f"{path}:{line}: unknown key {location[-1]}", nearest(location[-1], known))
    return UsageError(
        f"{path}:{line}: {'.'.join(location)} is {first['input']!r}: {first['msg']}", f"mend that line in {path}"
    )


def _line_of(text: str, location: list[str]) -> int:
    """1-based line on which the innermost named key stands, 1 if it is nowhere."""
    line = 1
    lines = text.splitlines()
    for part in location:
        pattern = re.compile(rf"^\s*(\[.*\b{re.escape(part)}\b.*\]|\"?{re.escape(part)}\"?\s*=)")
        line = next((i for i in range(line - 1, len(lines)) if pattern.match(lines[i])), line - 1) + 1
    return line
