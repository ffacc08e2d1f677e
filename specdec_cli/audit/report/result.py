"""A report and its parts (pure). Law: every part says what it took, and one that is not whole says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

SCHEMA = 1
Status = Literal["done", "partial", "left out", "failed"]


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that was measured. `data` is ready for JSON; `note` says why it is not `done`."""

    name: str
    status: Status
    seconds: float
    data: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All parts in their order. `budget_seconds` is what was asked for, `seconds` what was taken."""

    specdec: str
    date: str
    pair: Mapping[str, Any]
    budget_seconds: float
    seconds: float
    parts: Sequence[Part]

    def data(self, name: str) -> Mapping[str, Any]:
        """The data of the part `name`; empty if there is none."""
        return next((part.data for part in self.parts if part.name == name), {})

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"report": "specdec doctor", "schema": SCHEMA, **asdict(self)}
