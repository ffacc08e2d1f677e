"""Places in the past that caches can return to. Lengths and positions are in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdec_cli.engine.cache.recompute import Recording


@dataclass(frozen=True, slots=True)
class Fed:
    """A pass that can be taken back: positions `start` to `end`, the states from before it, its recording if any."""

    start: int
    end: int
    states: tuple[dict[str, Any], ...]
    recording: Recording | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """States at `length` of all parts that cannot be trimmed back to it however much is fed later."""

    length: int
    states: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Held:
    """All that caches hold: the `kinds` and `states` of their parts, and the places to come back to."""

    length: int
    kinds: tuple[str, ...]
    states: tuple[dict[str, Any], ...]
    snapshots: tuple[Snapshot, ...] = ()


def thinned(snapshots: list[Snapshot], kept: int) -> list[Snapshot]:
    """At most `kept` of them: the two newest, and of the others those that leave no large gap."""
    lengths = [0, *(snapshot.length for snapshot in snapshots)]
    if len(snapshots) <= kept:
        return snapshots
    old = range(len(snapshots) - 2) or range(1)
    dropped = min(old, key=lambda at: lengths[at + 2] - lengths[at])
    return thinned(snapshots[:dropped] + snapshots[dropped + 1 :], kept)
