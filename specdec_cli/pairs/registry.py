"""models.toml, read into a Registry and edited. An unknown key is an error with file, line and the nearest key.

The default pair is the config's `pair`. An earlier version kept it in models.toml; there it counts where the config has
none, until the next one is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
import tomlkit
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import DRAFTERS, HEAD
from specdec_cli.core.request import DRAFT_CONTEXT, LEAST_DRAFT_CONTEXT, MAX_K
from specdec_cli.core.tomlfile import TomlFile, edit_toml, read_toml
from specdec_cli.pairs.pair import Pair, Registry, nearest
from specdec_cli.system.config import PAIR, read_config, write_config

EXAMPLES = {
    "target": 'such as: target = "mlx-community/Qwen3-8B-4bit"',
    "schema_version": "add: schema_version = 1",
}
NEW = "# Your pairs; they replace packaged ones of the same name.\nschema_version = 1\n"
DIGEST, DATED = re.compile(r"[0-9a-f]{40}"), re.compile(r".*\S, \d{4}-\d\d-\d\d")


def _known_drafter(name: str) -> str:
    """Raises: ValueError for a name that is no drafter."""
    if name not in DRAFTERS:
        raise ValueError(f"known drafters are {', '.join(DRAFTERS)}")
    return name


def _digest(revision: str) -> str:
    """Raises: ValueError for a branch or tag, which may name other bytes tomorrow."""
    if not DIGEST.fullmatch(revision):
        raise ValueError("a revision here is a commit's 40 hex digits")
    return revision


def _dated(source: str) -> str:
    """Raises: ValueError for a source without its day."""
    if not DATED.fullmatch(source):
        raise ValueError('end it with its day, as in "some catalogue, 2026-11-23"')
    return source


class _Entry(BaseModel):
    """One table of models.toml; sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    target: str
    draft: str | None = None
    head_from: str | None = None
    target_revision: Annotated[str, AfterValidator(_digest)] | None = None
    draft_revision: Annotated[str, AfterValidator(_digest)] | None = None
    source: Annotated[str, AfterValidator(_dated)] = ""
    target_bytes: int | None = Field(None, ge=0)
    draft_bytes: int | None = Field(None, ge=0)
    k: Annotated[int, Field(ge=0, le=MAX_K, strict=True)] | Literal["auto"] = "auto"
    drafter: Annotated[str, AfterValidator(_known_drafter)] | None = None
    note: str = ""
    min_memory_gb: float | None = Field(None, gt=0)
    stop_repetition: int = Field(0, ge=0)
    draft_context: Annotated[int, Field(ge=LEAST_DRAFT_CONTEXT, strict=True)] | Literal["full"] = DRAFT_CONTEXT
    verified: bool = False
    target_adapter: str | None = None
    draft_adapter: str | None = None
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


def load_registry(packaged: Path, users: Path, config: Path | None = None) -> Registry:
    """Both files, the user's entries replacing packaged ones of the same name; the user's file may be absent.

    The default pair is that of `config`, where it has one. Raises: UsageError for a file that cannot be understood.
    """
    ours = read_registry(packaged, "packaged")
    theirs = read_registry(users, "yours") if users.is_file() else Registry({}, None)
    pairs, named = {**ours.pairs, **theirs.pairs}, theirs if theirs.default_pair is not None else ours
    default, place = named.default_pair, named.default_place
    chosen = read_config(config) if config else None
    if chosen and PAIR in chosen.values:
        default, place = chosen.values[PAIR], chosen.place(PAIR)
    if default is not None and not (isinstance(default, str) and default in pairs):
        message = f"{place}: the default pair is {default}, and no pair has that name"
        raise UsageError(message, nearest(str(default), pairs))
    return Registry(pairs, default, place)


def read_registry(path: Path, source: str) -> Registry:
    """One models.toml. Raises: UsageError with file, line and the nearest known key."""
    file = read_toml(path)
    try:
        parsed = _File.model_validate(file.values)
    except ValidationError as error:
        raise _explain(file, error) from error
    pairs = {}
    for name, entry in parsed.pairs.items():
        values = entry.model_dump(exclude={"measured", "head_from", "source"})
        if entry.draft is not None and entry.head_from is not None:
            raise UsageError(
                f"{file.place('pairs', name, 'head_from')}: pair {name} has draft {entry.draft} and "
                f"head_from {entry.head_from}, which both name a draft",
                "keep one of the two",
            )
        if entry.head_from is not None:
            values["draft"] = HEAD + entry.head_from
        pairs[name] = Pair(name=name, source=source, evidence=entry.source, **values)
    return Registry(pairs, parsed.default_pair, file.place("default_pair"))


def _explain(file: TomlFile, error: ValidationError) -> UsageError:
    """The first error as file:line, both values and the nearest key."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    if location[:1] == ["pairs"]:
        location = location[:4] if location[2:3] == ["measured"] else location[:3]  # after it pydantic names types
    path, place, key = file.path, file.place(*location), ".".join(location)
    known = _Entry.model_fields if len(location) > 2 else _File.model_fields
    if first["type"] == "extra_forbidden":
        return UsageError(f"{place}: unknown key {location[-1]}", nearest(location[-1], known))
    if first["type"] == "missing":
        return UsageError(f"{place}: {key} is missing", EXAMPLES.get(location[-1], f"add it to {path}"))
    reason = (
        "it must be a table"
        if first["type"] in ("model_type", "dict_type")
        else first["msg"].removeprefix("Value error, ")
    )
    return UsageError(f"{place}: {key} is {first['input']!r}: {reason}", f"correct that line in {path}")


# Keys that describe these two models, and not the ones that replace them.
OF_THE_FILES = ("target_revision", "draft_revision", "target_adapter", "draft_adapter")
OF_THE_MODELS = ("target_bytes", "draft_bytes", "min_memory_gb", "source", "verified", "measured")


def set_default(config: Path, users: Path, name: str | None) -> None:
    """Makes `name` the default pair, in the config alone; None: there is none."""
    if name is not None or PAIR in read_config(config).values:
        write_config(config, (PAIR,), name)
    if users.is_file() and "default_pair" in read_toml(users).values:
        with edit_toml(users, NEW) as document:
            del document["default_pair"]


def add_pair(path: Path, pair: Pair) -> None:
    """Adds or replaces one pair; other keys of its table stay. A new table has all that is known of `pair`."""
    with edit_toml(path, NEW) as document:
        table = _table(document, pair)
        values: dict[str, Any] = {"target": pair.target, **_drafting(pair), "k": pair.k}
        values |= {name: getattr(pair, name) for name in OF_THE_FILES}
        if any(table.get(key) != values[key] for key in ("target", "draft", "head_from")):
            values |= dict.fromkeys(OF_THE_MODELS)
        for key, value in values.items():
            if value is not None:
                table[key] = value
            else:
                table.pop(key, None)


def remove_pair(path: Path, name: str) -> None:
    """Takes the entry out; the default pair, if it is this one, stays for the caller to change."""
    with edit_toml(path, NEW) as document:
        pairs = document["pairs"]
        del pairs[name]
        if not pairs:
            del document["pairs"]


def record_measured(path: Path, pair: Pair, k: int | Literal["auto"], measured: Mapping[str, Any]) -> None:
    """Sets K, drafter and draft context of `pair`, which belong together, and adds `measured` to its measurements.

    It takes the place of an older one of that chip. A packaged pair is first copied into the user's file, since an
    entry there replaces the packaged one whole.
    """
    with edit_toml(path, NEW) as document:
        table = _table(document, pair)
        table["k"] = k
        table.update({key: measured[key] for key in ("drafter", "draft_context") if measured.get(key) is not None})
        others = [dict(entry) for entry in table.get("measured", []) if entry.get("chip") != measured["chip"]]
        entries = tomlkit.array().multiline(len(others) > 0)
        for entry in [*others, measured]:
            inline = tomlkit.inline_table()
            inline.update({key: value for key, value in entry.items() if value is not None})
            entries.append(inline)
        table["measured"] = entries


def _table(document: tomlkit.TOMLDocument, pair: Pair) -> tomlkit.items.Table:
    """The table of `pair` in the file; a new one has all that is known of it, defaults left out."""
    pairs = document.setdefault("pairs", tomlkit.table(is_super_table=True))
    if pair.name not in pairs:
        table = tomlkit.table()
        for field in fields(pair):
            if field.name in ("name", "source", "k"):
                continue
            key = "source" if field.name == "evidence" else field.name
            values = _drafting(pair) if field.name == "draft" else {key: getattr(pair, field.name)}
            for key, value in values.items():
                if value not in (None, field.default):
                    table[key] = value
        pairs[pair.name] = table
    found: tomlkit.items.Table = pairs[pair.name]
    return found


def _drafting(pair: Pair) -> dict[str, str | None]:
    """What the file says of the pair's draft: a head out of a repository has a key of its own."""
    head = pair.draft is not None and pair.draft.startswith(HEAD)
    return {"draft": None if head else pair.draft, "head_from": str(pair.draft).removeprefix(HEAD) if head else None}
