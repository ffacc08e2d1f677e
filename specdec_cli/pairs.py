"""models.toml -> Pair (pure). Law: an unknown key or name is an error that names the nearest known one."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specdec_cli.errors import NotAvailable, UsageError

DEMO = "demo"
MAX_K = 16
DEFAULT_K = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft (None: no draft); ids are Hub ids, folders, or `specdec:` paths inside the package."""

    name: str
    target: str
    draft: str | None
    k: int = DEFAULT_K
    note: str = ""
    target_revision: str | None = None
    draft_revision: str | None = None


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
    pairs: dict[str, _Entry]


def packaged_file() -> Path:
    """models.toml inside the wheel, or at the top of the checkout."""
    inside = Path(__file__).with_name("models.toml")
    return inside if inside.is_file() else Path(__file__).parent.parent / "models.toml"


def read_pairs(path: Path) -> dict[str, Pair]:
    """All pairs of one models.toml by name.

    Raises: UsageError with file, line and the nearest known key.
    """
    text = path.read_text(encoding="utf-8")
    try:
        parsed = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", f"mend that line in {path}") from error
    except ValidationError as error:
        raise _explain(path, text, error) from error
    return {
        name: Pair(
            name=name,
            target=entry.target,
            draft=entry.draft,
            k=entry.k if isinstance(entry.k, int) else DEFAULT_K,
            note=entry.note,
            target_revision=entry.target_revision,
            draft_revision=entry.draft_revision,
        )
        for name, entry in parsed.pairs.items()
    }


def find_pair(pairs: dict[str, Pair], name: str) -> Pair:
    """Raises: NotAvailable with the nearest names."""
    if name in pairs:
        return pairs[name]
    raise NotAvailable(f"no pair named {name}; {len(pairs)} are known", _nearest(name, pairs, "known pairs: "))


def _nearest(name: str, known: Iterable[str], prefix: str) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else prefix + ", ".join(names)


def _explain(path: Path, text: str, error: ValidationError) -> UsageError:
    """The first complaint as file:line, both values and the nearest key."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    line = _line_of(text, location)
    known = _Entry.model_fields if location[0] == "pairs" and len(location) > 2 else _File.model_fields
    if first["type"] == "extra_forbidden":
        return UsageError(f"{path}:{line}: unknown key {location[-1]}", _nearest(location[-1], known, "known keys: "))
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
