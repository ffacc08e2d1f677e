"""The stream of a race. Law: frozen values; every display, file and picture of a race is made from them alone.

One JSON object a line: `race` first, then the two lanes' own events with the lane's name and its seconds, then
`race_finish`. Fields may be added, never renamed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from specdec_cli.audit.divergence import Divergence
from specdec_cli.events import Event, Failure, to_dict

SCHEMA = 1

LaneName = Literal["plain", "drafted"]
PLAIN: LaneName = "plain"
DRAFTED: LaneName = "drafted"
LANES = (PLAIN, DRAFTED)


@dataclass(frozen=True, slots=True)
class RaceStart:
    """What is raced, before any model work. `prompt` is its text, unfiltered; `raw`: the answer continues it.

    A lane's turn lasts at least `turn_seconds`. `machine` is the device's own name.
    """

    event: ClassVar[str] = "race"
    pair: str
    prompt: str
    raw: bool
    machine: str
    turn_seconds: float
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class LaneStep:
    """An event of one lane.

    `lane_seconds` is what this lane has computed since it had read the prompt, up to this event. `done`: it decodes no
    further.
    """

    lane: LaneName
    event: Event
    lane_seconds: float
    done: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of both lanes for the same `tokens` tokens; `speedup` is plain ÷ drafted, with its 95 % interval.

    The interval is what another race of the same text here may give; None where this one is too short to say.
    """

    tokens: int
    plain_seconds: float
    drafted_seconds: float
    speedup: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class RaceFinish:
    """The end. `measured` is None where nothing was written by both.

    `tokens` and `passes` are (plain, drafted). The texts are the same unless there is a `divergence`, or one lane was
    interrupted further on than the other.
    """

    event: ClassVar[str] = "race_finish"
    reason: Literal["done", "interrupted"]
    tokens: tuple[int, int]
    passes: tuple[int, int]
    measured: Measured | None
    divergence: Divergence | None = None

    @property
    def same_text(self) -> bool:
        return self.divergence is None

    @property
    def near_tie(self) -> bool:
        """Whether the texts differ, and rounding explains it."""
        return self.divergence is not None and self.divergence.near_tie


RaceEvent = RaceStart | LaneStep | RaceFinish | Failure


def race_dict(event: RaceEvent) -> dict[str, Any]:
    """The JSON object of one event; those of a lane are the session's own with `lane` and `lane_seconds`."""
    match event:
        case LaneStep():
            return {**to_dict(event.event), "lane": event.lane, "lane_seconds": event.lane_seconds, "done": event.done}
        case RaceFinish():
            values = {"event": event.event, "reason": event.reason, "same_text": event.same_text}
            values["near_tie"] = event.near_tie
            for name, plain, drafted in (("tokens", *event.tokens), ("target_passes", *event.passes)):
                values[name] = {PLAIN: plain, DRAFTED: drafted}
            values["measured"] = event.measured and asdict(event.measured)
            values["divergence"] = event.divergence and event.divergence.to_dict()
            return values
        case RaceStart():
            return {"event": event.event, **asdict(event)}
    return to_dict(event)
