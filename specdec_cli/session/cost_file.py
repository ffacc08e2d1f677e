"""Costs of rounds, kept from one run to the next: a memo, whose loss or nonsense harms nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from specdec_cli.core import jsonfile
from specdec_cli.system.machine import low_power_mode, power_source

# 4: a plain step's seconds are the mean of those in a row; before, a full queue shifted them from one to the next.
# 5: under a constraint, too, the draft's clock is read before its verification is queued.
# 6: what looks at drafting may cost adds up over processes.
SCHEMA = 6
# Pairs, machines and context lengths of which something is kept; the least recently written go first.
KEPT_ENTRIES = 64
LOCK_SECONDS = 1.0

Values = Mapping[str, Any]


class CostStore(Protocol):
    """Keeps one JSON object for each key. A dict keeps them for this process."""

    def get(self, key: str, /) -> Values | None:
        """The values last written, None if nothing or nothing readable."""

    def __setitem__(self, key: str, values: Values, /) -> None: ...


class CostFile:
    """One JSON file, replaced whole; in place of a damaged one measuring starts anew."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str, /) -> Values | None:
        found = self._entries().get(key)
        return found if isinstance(found, dict) else None

    def __setitem__(self, key: str, values: Values, /) -> None:
        # A folder that cannot be written, or that another program holds, only means measuring again next time.
        with contextlib.suppress(OSError), jsonfile.locked(self._path.parent, LOCK_SECONDS):
            entries = self._entries()
            entries.pop(key, None)
            kept = dict(list((entries | {key: dict(values)}).items())[-KEPT_ENTRIES:])
            jsonfile.replace_text(self._path, json.dumps({"schema": SCHEMA, "entries": kept}))

    def _entries(self) -> dict[str, Any]:
        values = jsonfile.read_or_empty(self._path)
        entries = values.get("entries") if values.get("schema") == SCHEMA else None
        return entries if isinstance(entries, dict) else {}


def power_state() -> str:
    """What this machine runs on now, such as `battery, low power`."""
    return power_source() + (", low power" if low_power_mode() else "")


@dataclass(frozen=True, slots=True)
class CostsAtPower:
    """The costs in `store` at one `power`: what was measured while that changed is not written."""

    store: CostStore
    power: str
    power_now: Callable[[], str] = power_state

    def get(self, key: str, /) -> Values | None:
        return self.store.get(f"{key} · {self.power}")

    def __setitem__(self, key: str, values: Values, /) -> None:
        if self.power_now() == self.power:
            self.store[f"{key} · {self.power}"] = values


def cost_file() -> CostFile:
    """The user's cost file."""
    return CostFile(platformdirs.user_state_path("specdec") / "costs.json")
