"""A time budget over parts. Law: a part that fails or finds no time left is named, and the others still run.

Each part may take its share of what is left, so that time saved by one is there for the later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.audit.report.result import Part, Status
from specdec_cli.errors import SpecdecError

Clock = Callable[[], float]
# What was measured is put into the first argument as it is found. Returns why it is not all there; "" if it is.
Work = Callable[[dict[str, Any], "Deadline"], str]
OnPart = Callable[[int, int, str], None]
# What models, their caches, the device, other programs and files may raise.
RAISED = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, OSError, MemoryError, SpecdecError)


class Impossible(Exception):
    """A part cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a part's time."""

    clock: Clock
    ends_at: float

    @property
    def left_seconds(self) -> float:
        return max(self.ends_at - self.clock(), 0.0)

    def over(self) -> bool:
        return self.clock() >= self.ends_at


@dataclass(frozen=True, slots=True)
class Task:
    """A part to be measured: about `planned_seconds`; with less than `least_seconds` it is left out, with 0 never."""

    name: str
    planned_seconds: float
    least_seconds: float
    work: Work


def carry_out(tasks: Sequence[Task], budget_seconds: float, clock: Clock, on_part: OnPart) -> list[Part]:
    """Every task in its order; `on_part` is called before each."""
    began, parts = clock(), []
    for place, task in enumerate(tasks):
        on_part(place + 1, len(tasks), task.name)
        left = began + budget_seconds - clock()
        share = task.planned_seconds / sum(later.planned_seconds for later in tasks[place:])
        parts.append(_carried_out(task, left, share, clock))
    return parts


def _carried_out(task: Task, left_seconds: float, share: float, clock: Clock) -> Part:
    if task.least_seconds and left_seconds < task.least_seconds:
        note = f"no time: {max(left_seconds, 0.0):.0f} s were left, and it takes {task.least_seconds:.0f} s at least"
        return Part(task.name, "left out", 0.0, {}, note)
    begin, data = clock(), dict[str, Any]()
    status: Status
    try:
        note = task.work(data, Deadline(clock, begin + max(share * left_seconds, task.least_seconds)))
        status = "partial" if note else "done"
    except Impossible as error:
        status, note = "left out", str(error)
    except RAISED as error:
        status, note = (
            "failed",
            error.message if isinstance(error, SpecdecError) else f"{type(error).__name__}: {error}",
        )
    return Part(task.name, status, clock() - begin, data, note)
