"""How far a long step is: whoever does it says so, and a display decides how that is shown (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """`done` of `of` are done, in `unit`: "bytes", "%" or a noun such as "token"; without one they are just counted.

    `of` 0: nothing can be counted. `part` names what is done now, within the whole; `note` is what else may be shown.
    """

    part: str = ""
    done: int = 0
    of: int = 0
    unit: str = ""
    note: str = ""


OnStep = Callable[[Step], None]


def unseen(step: Step) -> None:
    """An OnStep that nobody looks at."""
