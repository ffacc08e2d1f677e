"""Costs of rounds, kept from one run to the next: a memo, whose loss or nonsense harms nothing."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from specdec_cli.core import jsonfile
from specdec_cli.system.machine import low_power_mode, power_source

# Of what is written: other versions are not read.
SCHEMA = 7
# Pairs, machines and context lengths of which something is kept; the least recently written go first.
KEPT_ENTRIES = 64
LOCK_SECONDS = 1.0
# So long a power state is believed.
POWER_SECONDS = 10.0

Values = Mapping[str, Any]


class CostStore(Protocol):
    """Keeps one JSON object for each key. A dict keeps them for this process."""

    def get(self, key: str, /) -> Values | None:
        """The values last written, None if nothing or nothing readable."""

    def __setitem__(self, key: str, values: Values, /) -> None: ...


class CostFile:
    """One JSON file, replaced whole; in place of a damaged one measuring starts anew."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str, /) -> Values | None:
        found = self._entries().get(key)
        return found if isinstance(found, dict) else None

    def __setitem__(self, key: str, values: Values, /) -> None:
        # A folder that cannot be written, or that another program holds, only means measuring again next time.
        with contextlib.suppress(OSError), jsonfile.locked(self.path.parent, LOCK_SECONDS):
            entries = self._entries()
            entries.pop(key, None)
            kept = dict(list((entries | {key: dict(values)}).items())[-KEPT_ENTRIES:])
            jsonfile.replace_text(self.path, json.dumps({"schema": SCHEMA, "entries": kept}))

    def _entries(self) -> dict[str, Any]:
        values = jsonfile.read_or_empty(self.path)
        entries = values.get("entries") if values.get("schema") == SCHEMA else None
        return entries if isinstance(entries, dict) else {}


def power_state() -> str:
    """What this machine runs on now, such as `battery, low power`. On a Mac that takes two programs."""
    return power_source() + (", low power" if low_power_mode() else "")


class CostsAtPower:
    """The costs in `store` at the power that `ask` tells now: what was measured while that changed is not written.

    A thread of its own asks, reads and writes, in order: whoever writes does not wait for the power, nor for the file.
    The process ends after all was written.
    """

    def __init__(
        self, store: CostStore, ask: Callable[[], str] = power_state, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._ask, self._now, self._told = store, ask, now, ("", -POWER_SECONDS)
        self._thread = ThreadPoolExecutor(1, "costs")
        self._began = self._thread.submit(self._power)

    def get(self, key: str, /) -> Values | None:
        return self._thread.submit(lambda: self._store.get(self._at(key))).result()

    def __setitem__(self, key: str, values: Values, /) -> None:
        self._thread.submit(self._write, key, values)

    def _write(self, key: str, values: Values) -> None:
        if self._power() == self._began.result():
            self._store[self._at(key)] = values

    def _at(self, key: str) -> str:
        return f"{key} · {self._began.result()}"

    def _power(self) -> str:
        """Of not more than `POWER_SECONDS` ago."""
        if self._now() - self._told[1] >= POWER_SECONDS:
            self._told = self._ask(), self._now()
        return self._told[0]


def cost_file() -> CostFile:
    """The user's cost file."""
    return CostFile(platformdirs.user_state_path("specdec") / "costs.json")
