"""Costs of rounds, kept from one run to the next. Law: a memo; losing it, or finding nonsense in it, harms nothing."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import platformdirs

# 3: how far ratios may be off is written beside them; a measured table has no assumed entries.
SCHEMA = 3
# Pairs, machines and context lengths of which something is kept; the least recently written go first.
KEPT_ENTRIES = 64


class CostStore(Protocol):
    """Keeps one JSON object for each key."""

    def read(self, key: str) -> Mapping[str, Any] | None:
        """The values last written, None if nothing or nothing readable."""

    def write(self, key: str, values: Mapping[str, Any]) -> None: ...


class NullCostStore:
    """Keeps nothing."""

    def read(self, key: str) -> Mapping[str, Any] | None:
        return None

    def write(self, key: str, values: Mapping[str, Any]) -> None:
        return


class MemoryCostStore:
    """Keeps them for this process: the next conversation of a pair starts from the costs of the one before."""

    def __init__(self) -> None:
        self._entries: dict[str, Mapping[str, Any]] = {}

    def read(self, key: str) -> Mapping[str, Any] | None:
        return self._entries.get(key)

    def write(self, key: str, values: Mapping[str, Any]) -> None:
        self._entries[key] = values


class CostFile:
    """One JSON file, replaced whole, so that two programs at once lose at most one entry."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, key: str) -> Mapping[str, Any] | None:
        found = self._entries().get(key)
        return found if isinstance(found, dict) else None

    def write(self, key: str, values: Mapping[str, Any]) -> None:
        entries = self._entries()
        entries.pop(key, None)
        entries[key] = dict(values)
        kept = dict(list(entries.items())[-KEPT_ENTRIES:])
        # A folder that cannot be written only means measuring again next time.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"schema": SCHEMA, "entries": kept}, file)
            Path(draft).replace(self._path)

    def _entries(self) -> dict[str, Any]:
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        entries = values.get("entries") if isinstance(values, dict) and values.get("schema") == SCHEMA else None
        return entries if isinstance(entries, dict) else {}


def cost_file() -> CostFile:
    """The user's cost file."""
    return CostFile(platformdirs.user_state_path("specdec") / "costs.json")
