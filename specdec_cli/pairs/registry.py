"""models.toml -> Registry. Law: an unknown key is an error with file, line and the nearest key."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from specdec_cli.errors import UsageError
from specdec_cli.kinds import DRAFTERS, HEAD
from specdec_cli.pairs.pair import Pair, Registry, nearest
from specdec_cli.request import MAX_K

EXAMPLES = {
    "target": 'such as: target = "mlx-community/Qwen3-8B-4bit"',
    "schema_version": "add: schema_version = 1",
}
KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
PATH = rf"{KEY}(?:\s*\.\s*{KEY})*"
HEADER, ASSIGNMENT = re.compile(rf"\s*\[+\s*({PATH})\s*\]"), re.compile(rf"\s*({PATH})\s*=")


def _known_drafter(name: str) -> str:
    """Raises: ValueError for a name that is no drafter."""
    if name not in DRAFTERS:
        raise ValueError(f"known drafters are {', '.join(DRAFTERS)}")
    return name


class _Entry(BaseModel):
    """One table of models.toml; sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    target: str
    draft: str | None = None
    head_from: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    target_bytes: int | None = Field(None, ge=0)
    draft_bytes: int | None = Field(None, ge=0)
    k: Annotated[int, Field(ge=0, le=MAX_K, strict=True)] | Literal["auto"] = "auto"
    drafter: Annotated[str, AfterValidator(_known_drafter)] | None = None
    note: str = ""
    min_memory_gb: float | None = Field(None, gt=0)
    stop_repetition: int = Field(0, ge=0)
    verified: bool = False
    measured: list[dict[str, Any]] = []


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_version: Literal[1]
    default_pair: str | None = None
    pairs: dict[str, _Entry] = {}


def packaged_file() -> Path:
    """models.toml inside the wheel, or at the top of the checkout."""
    package = Path(__file__).parents[1]
    inside = package / "models.toml"
    return inside if inside.is_file() else package.parent / "models.toml"


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
    default = registry.default_pair
    if default is not None and default not in registry.pairs:
        line = _line_of(users.read_text(encoding="utf-8"), ["default_pair"])
        raise UsageError(
            f"{users}:{line}: default_pair is {default}, and no pair has that name", nearest(default, registry.pairs)
        )
    return registry


def read_registry(path: Path, source: str) -> Registry:
    """One models.toml.

    Raises: UsageError with file, line and the nearest known key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", "correct or remove that file") from error
    try:
        parsed = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", f"correct that line in {path}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply", "correct or remove that file") from error
    except ValidationError as error:
        raise _explain(path, text, error) from error
    for name, entry in parsed.pairs.items():
        _require_one_draft(path, text, name, entry)
    pairs = {name: _pair(name, entry, source) for name, entry in parsed.pairs.items()}
    return Registry(pairs, parsed.default_pair)


def _require_one_draft(path: Path, text: str, name: str, entry: _Entry) -> None:
    if entry.draft is not None and entry.head_from is not None:
        raise UsageError(
            f"{path}:{_line_of(text, ['pairs', name, 'head_from'])}: pair {name} has draft {entry.draft} and head_from "
            f"{entry.head_from}, which both name a draft",
            "keep one of the two",
        )


def _pair(name: str, entry: _Entry, source: str) -> Pair:
    values = entry.model_dump(exclude={"measured", "head_from"})
    if entry.head_from is not None:
        values["draft"] = HEAD + entry.head_from
    return Pair(name=name, source=source, **values)


def _explain(path: Path, text: str, error: ValidationError) -> UsageError:
    """The first error as file:line, both values and the nearest key."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    if location[:1] == ["pairs"]:
        location = location[:4] if location[2:3] == ["measured"] else location[:3]  # after it pydantic names types
    place, key = f"{path}:{_line_of(text, location)}", ".".join(location)
    known = _Entry.model_fields if len(location) > 2 else _File.model_fields
    if first["type"] == "extra_forbidden":
        return UsageError(f"{place}: unknown key {location[-1]}", nearest(location[-1], known))
    if first["type"] == "missing":
        return UsageError(f"{place}: {key} is missing", EXAMPLES.get(location[-1], f"add it to {path}"))
    reason = "it must be a table" if first["type"] in ("model_type", "dict_type") else first["msg"]
    return UsageError(f"{place}: {key} is {first['input']!r}: {reason}", f"correct that line in {path}")


def _line_of(text: str, location: list[str]) -> int:
    """1-based line of the innermost key of `location` in the text, 1 if there is none."""
    best, found, table = 0, 1, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            path = table = _keys(header[1])
        elif assignment := ASSIGNMENT.match(line):
            path = [*table, *_keys(assignment[1])]
        else:
            continue
        if best < len(path) and path == location[: len(path)]:
            best, found = len(path), number
    return found


def _keys(path: str) -> list[str]:
    return [key.strip("\"'") for key in re.findall(KEY, path)]
