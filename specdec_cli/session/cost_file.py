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

from specdec_cli import jsonfile
from specdec_cli.jsonfile import locked

# 4: a plain step's seconds are the mean of those in a row; before, a full queue shifted them from one to the next.
# 5: under a constraint, too, the draft's clock is read before its verification is queued.
# 6: what looks at drafting may cost adds up over processes.
SCHEMA = 6
# Pairs, machines and context lengths of which something is kept; the least recently written go first.
KEPT_ENTRIES = 64
LOCK_SECONDS = 1.0


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
    """One JSON file, replaced whole. A damaged one is set aside as costs.damaged.json, and measuring starts anew."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, key: str) -> Mapping[str, Any] | None:
        found = self._entries().get(key)
        return found if isinstance(found, dict) else None

    def write(self, key: str, values: Mapping[str, Any]) -> None:
        # A folder that cannot be written, or that another program holds, only means measuring again next time.
        with contextlib.suppress(OSError), locked(self._path.parent, LOCK_SECONDS):
            entries = self._entries()
            entries.pop(key, None)
            entries[key] = dict(values)
            self._replace({"schema": SCHEMA, "entries": dict(list(entries.items())[-KEPT_ENTRIES:])})

    def _replace(self, values: Mapping[str, Any]) -> None:
        """Raises: OSError, leaving the old file and nothing beside it."""
        descriptor, draft = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(values, file)
            Path(draft).replace(self._path)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise

    def _entries(self) -> dict[str, Any]:
        try:
            values = jsonfile.read_object(self._path)
        except FileNotFoundError:
            return {}
        except (OSError, jsonfile.NotJson):
            self._set_aside()
            return {}
        entries = values.get("entries") if values.get("schema") == SCHEMA else None
        return entries if isinstance(entries, dict) else {}

    def _set_aside(self) -> None:
        with contextlib.suppress(OSError):
            self._path.replace(self._path.with_suffix(".damaged.json"))


def cost_file() -> CostFile:
    """The user's cost file."""
    return CostFile(platformdirs.user_state_path("specdec") / "costs.json")
