"""What rounding explains, and what it does not (pure). What bounds our changes is measured without our code.

Three readings of the same positions (`engine.baseline`) say by how much a token leads its best rivals: one row a pass
by mlx-lm, several rows a pass by mlx-lm, and as many rows a pass by specdec, rollback included. From the first to the
second is the *machine's* change: its kernels for several rows add in another order. From the second to the third is
*ours*: the same kernels read the same tokens, so it is 0 to the bit, or as small as the machine's where the past in the
caches was rounded otherwise. These are faults:

* passes whose changes of ours have a root mean square above `SPREAD` times that of the machine's;
* a change of ours above `PEAK` times the machine's largest.

Where the machine changes nothing, a quarter of the spacing of numbers at the largest logit stands for its root mean
square, and ten of these for its largest change: a cache in another order may still move a sum by a last bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The spacing of numbers at 1; TF32 keeps as many bits as float16.
EPSILONS: Mapping[str, float] = {"float32": 2.0**-23, "TF32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# In logits: below this nothing is told apart.
LEAST = 1e-3
SPREAD, PEAK, PEAK_OF_SPREAD = 2.0, 3.0, 10.0
# Of numbers at the largest logit: more than that is believed of no machine.
ROUNDINGS = 16
# Fewer changes are no evidence of what is always there.
ENOUGH = 64
READINGS = {
    "whole": "without a rollback",
    "repeated": "after rolling back right drafts",
    "rejected": "after rolling back wrong drafts",
}


def difference(leads: Sequence[float], others: Sequence[float]) -> float:
    """The largest of `leads` less `others`; infinite where one of them is no number, 0 for two equal infinities."""
    found = (0.0 if lead == other else lead - other for lead, other in zip(leads, others, strict=True))
    return max((value if math.isfinite(value) else math.inf for value in found), key=abs, default=0.0)


def finite(value: float) -> float | None:
    """`value` as JSON can hold it: null where it is infinite."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class LeadChange:
    """Of a token's lead over a rival, as `row` (from 0) of a pass, in logits: the largest over its rivals.

    `position` is an index into the answer to `prompt`; `reading` is as in `engine.baseline.passes`.
    """

    prompt: str
    reading: str
    position: int
    row: int
    logits: float


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes, at least one, with something in common."""

    name: str
    changes: Sequence[LeadChange]

    @property
    def largest(self) -> LeadChange:
        return max(self.changes, key=lambda change: abs(change.logits))

    @property
    def size(self) -> float:
        """Of the largest change."""
        return abs(self.largest.logits)

    @property
    def rms(self) -> float:
        """Root mean square."""
        return math.sqrt(sum(change.logits**2 for change in self.changes) / len(self.changes))

    def to_dict(self) -> dict[str, Any]:
        at = self.largest
        return {
            "compared": len(self.changes),
            "largest": finite(self.size),
            "rms": finite(self.rms),
            "largest_at": {"prompt": at.prompt, "position": at.position, "row": at.row},
        }


@dataclass(frozen=True, slots=True)
class SeveralRows:
    """Passes of `rows` rows in a network of `precision`: the `machine`'s changes and `ours`."""

    rows: int
    machine: Changes
    ours: Changes
    precision: str
    largest_logit: float

    @property
    def bounds(self) -> tuple[float, float]:
        """(root mean square, largest change) of ours that rounding explains."""
        least = max(LEAST / PEAK_OF_SPREAD, EPSILONS[self.precision] * self.largest_logit / 4)
        return SPREAD * max(self.machine.rms, least), max(PEAK * self.machine.size, PEAK_OF_SPREAD * least)

    @property
    def fault(self) -> Fault | None:
        """What rounding does not explain; None where nothing is."""
        rms, peak = self.bounds
        readings: dict[str, list[LeadChange]] = {}
        for change in self.ours.changes:
            readings.setdefault(change.reading, []).append(change)
        groups = [Changes(READINGS[reading], changes) for reading, changes in readings.items()]
        # So few changes that their root mean square is no evidence are judged by the largest alone.
        wrong = [g for g in groups if not g.size <= peak < math.inf or (len(g.changes) >= ENOUGH and g.rms > rms)]
        if not wrong:
            return None
        joined = [change for group in wrong for change in group.changes]
        return Fault(self, Changes(", ".join(group.name for group in wrong), joined))

    def to_dict(self) -> dict[str, Any]:
        rms, peak = self.bounds
        machine, ours = self.machine.to_dict(), self.ours.to_dict()
        return {"rows": self.rows, "machine": machine, "ours": ours, "cap": finite(peak), "cap_rms": finite(rms)}


@dataclass(frozen=True, slots=True)
class Fault:
    """Changes of ours in `passes` that rounding does not explain."""

    passes: SeveralRows
    group: Changes

    def __str__(self) -> str:
        rms, peak = self.passes.bounds
        size, at = self.group.size, self.group.largest
        place = f"{at.prompt}, token {at.position + 1}, row {at.row + 1}"
        found = f"passes of {self.passes.rows} rows, {self.group.name}: a lead changes by {size:.2g} ({place})"
        theirs = f"rms {self.group.rms:.2g}, against mlx-lm's own passes of as many rows"
        return f"{found}, {theirs}; rounding explains at most {peak:.2g}, rms {rms:.2g}"

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.passes.rows, "where": self.group.name, "summary": str(self), **self.group.to_dict()}


@dataclass(frozen=True, slots=True)
class Rounding:
    """What was measured on `positions` tokens of plain decoding.

    `precision` is that of the network's products; `given` is --gap: a near-tie's limit, which bounds nothing else.
    """

    precision: str
    positions: int
    passes: Sequence[SeveralRows]
    given: float | None = None

    @property
    def faults(self) -> list[Fault]:
        return [fault for passes in self.passes if (fault := passes.fault)]

    @property
    def measured(self) -> float:
        """The largest change from one row to several, in logits: the machine's and, where that is no fault, ours."""
        sizes = (one.machine.size + (0.0 if one.fault else one.ours.size) for one in self.passes)
        return max(filter(math.isfinite, sizes), default=0.0)

    def limit(self, temperature: float = 0.0) -> float:
        """The largest gap of a near-tie, in scores: above temperature 0 they are logits ÷ temperature.

        Whatever was measured, no more is believed than what rounding in this precision changes.
        """
        if self.given is not None:
            return self.given
        largest = max((one.largest_logit for one in self.passes), default=0.0)
        most = max(LEAST, ROUNDINGS * EPSILONS[self.precision] * largest)
        return min(max(LEAST, self.measured), most) / (temperature or 1.0)

    def flips(self, margins: Iterable[float], temperature: float = 0.0) -> float:
        """How many positions with these `margins`, in scores, the machine's own changes are expected to flip.

        A change flips a position half of the times that it exceeds the margin: in the other half it widens it.
        """
        changes = sorted(abs(change.logits) for one in self.passes for change in one.machine.changes)
        over = [len(changes) - bisect_left(changes, margin * (temperature or 1.0)) for margin in margins]
        return sum(over) / len(changes) / 2 if changes else 0.0

    def __str__(self) -> str:
        if self.given is not None:
            return f"a gap of at most {self.given:g} (--gap)"
        limit, divided = self.limit(), "(÷ temperature where coupled)"
        if limit == LEAST:
            return f"a gap of at most {LEAST:g} {divided}"
        return f"a gap of at most {limit:.2g}, the largest change that rounding made here {divided}"

    def to_dict(self) -> dict[str, Any]:
        """Everything in logits."""
        return {
            "positions": self.positions,
            "measured": finite(self.measured),
            "limit": self.limit(),
            "passes": [passes.to_dict() for passes in self.passes],
            "faults": [fault.to_dict() for fault in self.faults],
        }
