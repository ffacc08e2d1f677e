"""By how much the lead of a token changes in a pass of several rows (pure). All values are in logits.

Law: a value that is no number counts as infinite, so no comparison can pass because of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

READINGS = {
    "whole": "without a rollback",
    "repeated": "after rolling back right drafts",
    "rejected": "after rolling back wrong drafts",
}


def difference(lead: float, other: float) -> float:
    """`lead` less `other`; infinite where one of them is no number, 0 for two equal infinities."""
    if lead == other:
        return 0.0
    found = lead - other
    return found if math.isfinite(found) else math.inf


def root_mean_square(values: Iterable[float]) -> float:
    """0 for no values."""
    squares = [value * value for value in values]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """The lead of a token over its best rival as `row` (from 0) of a pass, less its lead in a pass of one row.

    `position` is an index into the answer to `prompt`; `reading` is as in `engine.rounding.passes`.
    """

    prompt: str
    reading: str
    position: int
    row: int
    logits: float

    def __str__(self) -> str:
        return f"{self.prompt}, token {self.position + 1}, row {self.row + 1}"


@dataclass(frozen=True, slots=True)
class Group:
    """Changes, at least one, with something in common."""

    name: str
    changes: Sequence[Change]

    @property
    def largest(self) -> Change:
        return max(self.changes, key=lambda change: abs(change.logits))

    @property
    def rms(self) -> float:
        return root_mean_square(change.logits for change in self.changes)

    @property
    def mean(self) -> float:
        return sum(change.logits for change in self.changes) / len(self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Infinite values are null: JSON has none."""
        at = self.largest
        return {
            "compared": len(self.changes),
            "largest": finite(abs(at.logits)),
            "rms": finite(self.rms),
            "mean": finite(self.mean),
            "largest_at": {"prompt": at.prompt, "position": at.position, "row": at.row},
        }


@dataclass(frozen=True, slots=True)
class SeveralRows:
    """All changes of passes of `rows` rows."""

    rows: int
    changes: Sequence[Change]

    @property
    def all(self) -> Group:
        return Group("every row", self.changes)

    @property
    def by_row(self) -> list[Group]:
        """Rows that were read; at the end of a short text the last ones are not."""
        found = [[one for one in self.changes if one.row == row] for row in range(self.rows)]
        return [Group(f"row {row}", changes) for row, changes in enumerate(found, 1) if changes]

    @property
    def by_reading(self) -> dict[str, Group]:
        """The readings there are."""
        return {name: self._of(name) for name in dict.fromkeys(change.reading for change in self.changes)}

    def _of(self, reading: str) -> Group:
        return Group(READINGS[reading], [one for one in self.changes if one.reading == reading])

    def to_dict(self) -> dict[str, Any]:
        rows = [finite(group.rms) for group in self.by_row]
        readings = {name: finite(group.rms) for name, group in self.by_reading.items()}
        return {"rows": self.rows, **self.all.to_dict(), "rms_by_row": rows, "rms_by_reading": readings}


def finite(value: float) -> float | None:
    """`value` as JSON can hold it."""
    return value if math.isfinite(value) else None
