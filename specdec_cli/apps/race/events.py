"""The stream of a race, its state, and its ratio (pure). Every display and picture of a race is made from them alone.

One JSON object a line: `race` first, then the two lanes' own events with the lane's name and its seconds, then
`race_finish`. Fields may be added, never renamed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import exp, log
from typing import Any, ClassVar, Literal

from specdec_cli.core.events import Event, Failure, Finish, Prefill, Reading, RoundDone, Start, to_dict
from specdec_cli.core.gain import FEWEST_ROUNDS
from specdec_cli.core.speedup import LEAST_SECONDS, Block, kind_means, t_interval
from specdec_cli.measure.divergence import Divergence

SCHEMA = 1
LaneName = Literal["plain", "drafted"]
PLAIN: LaneName = "plain"
DRAFTED: LaneName = "drafted"
LANES = (PLAIN, DRAFTED)
# Parts of each lane's rounds that are compared for the interval.
BLOCKS = 8
# Fewer tokens say nothing about who is ahead.
FEWEST_TOKENS = 8


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
class LaneSeconds:
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
    measured: LaneSeconds | None
    divergence: Divergence | None = None

    @property
    def lossless(self) -> bool:
        """The same text, or texts that differ as rounding explains."""
        return self.divergence is None or self.divergence.near_tie


RaceEvent = RaceStart | LaneStep | RaceFinish | Failure


def race_dict(event: RaceEvent) -> dict[str, Any]:
    """The JSON object of one event; those of a lane are the session's own with `lane` and `lane_seconds`."""
    match event:
        case LaneStep():
            return {**to_dict(event.event), "lane": event.lane, "lane_seconds": event.lane_seconds, "done": event.done}
        case RaceFinish(divergence=divergence):
            return {
                "event": event.event,
                "reason": event.reason,
                "same_text": divergence is None,
                "near_tie": divergence is not None and divergence.near_tie,
                "tokens": dict(zip(LANES, event.tokens, strict=True)),
                "target_passes": dict(zip(LANES, event.passes, strict=True)),
                "measured": event.measured and asdict(event.measured),
                "divergence": divergence and divergence.to_dict(),
            }
        case RaceStart():
            return {"event": event.event, **asdict(event)}
    return to_dict(event)


Marks = Sequence[tuple[float, int]]
"""(seconds, tokens) of one lane after each of its rounds, both growing."""


def measure_ratio(
    plain: Marks, drafted: Marks, tokens: int, ks: Sequence[int] = (), once: Sequence[float] = ()
) -> LaneSeconds | None:
    """The ratio over the first `tokens` tokens of both lanes; None without any.

    `ks` are the tokens that each round of the drafted lane drafted, `once` those of its seconds that are paid once a
    reply: they count, but are no disturbance.
    """
    slow, fast = seconds_at(plain, tokens), seconds_at(drafted, tokens)
    if tokens < 1 or slow <= 0 or fast <= 0:
        return None
    low = high = None
    plain, drafted = ([*marks[: bisect_left(marks, (end, 0)) + 1]] for marks, end in ((plain, slow), (drafted, fast)))
    if min(len(plain), len(drafted)) >= FEWEST_ROUNDS:
        parts = zip(cut_lane(plain, [0] * len(plain)), cut_lane(drafted, ks or [0] * len(drafted), once), strict=True)
        _, half = t_interval([[Block(*one, *other).log_ratio for one, other in parts]])
        low, high = exp(log(slow / fast) - half), exp(log(slow / fast) + half)
    return LaneSeconds(tokens, slow, fast, slow / fast, low, high)


def seconds_at(marks: Marks, tokens: float) -> float:
    """When a lane had written so many tokens; inside a round in proportion. The last mark's where it never had."""
    place = bisect_left(marks, tokens, key=lambda mark: mark[1])
    if place == len(marks):
        return marks[-1][0] if marks else 0.0
    (before, fewer), (after, more) = marks[place - 1] if place else (0.0, 0), marks[place]
    return before + (after - before) * (tokens - fewer) / (more - fewer)


def cut_lane(marks: Marks, ks: Sequence[int], once: Sequence[float] = ()) -> list[tuple[float, float]]:
    """[BLOCKS] what each part of a lane's rounds took, and what they would have taken undisturbed, in seconds."""
    ends = [0.0, *(seconds for seconds, _ in marks)]
    paid_once = [*once, *[0.0] * len(marks)]
    taken = [max(after - before - paid, LEAST_SECONDS) for (before, after), paid in zip(pairwise(ends), paid_once)]  # noqa: B905
    usual = kind_means(ks[: len(taken)], taken)
    cuts = [len(taken) * part // BLOCKS for part in range(BLOCKS + 1)]
    return [(sum(taken[begin:end]), sum(usual[begin:end])) for begin, end in pairwise(cuts)]


@dataclass(slots=True)
class LaneState:
    """One lane so far; `marks` are its seconds and tokens after each round."""

    start: Start | None = None
    reading: Reading | None = None
    prefill_seconds: float | None = None
    rounds: list[RoundDone] = field(default_factory=list)
    marks: list[tuple[float, int]] = field(default_factory=list)
    finish: Finish | None = None
    done: bool = False

    def apply(self, step: LaneStep) -> None:
        """One more event."""
        self.done = self.done or step.done
        match step.event:
            case Start():
                self.start = step.event
            case Reading():
                self.reading = step.event
            case Prefill(seconds=seconds):
                self.reading, self.prefill_seconds = None, seconds
            case RoundDone(round=judged):
                self.rounds.append(step.event)
                self.marks.append((step.lane_seconds, self.tokens + len(judged.emitted)))
            case Finish():
                self.finish, self.done = step.event, True

    @property
    def whole(self) -> bool:
        """Whether it was done, not interrupted."""
        return self.done and not (self.finish and self.finish.reason == "interrupted")

    @property
    def seconds(self) -> float:
        return self.marks[-1][0] if self.marks else 0.0

    @property
    def tokens(self) -> int:
        return self.marks[-1][1] if self.marks else 0

    @property
    def ids(self) -> list[int]:
        """Everything it emitted."""
        return [token for done in self.rounds for token in done.round.emitted]

    def by(self, seconds: float) -> tuple[int, int]:
        """(tokens, rounds) that were done by then."""
        rounds = bisect_left(self.marks, (seconds, self.tokens + 1))
        return (self.marks[rounds - 1][1] if rounds else 0), rounds


class RaceState:
    """Both lanes so far."""

    def __init__(self) -> None:
        self.start: RaceStart | None = None
        self.lanes: dict[LaneName, LaneState] = {name: LaneState() for name in LANES}
        self.finish: RaceFinish | None = None

    def apply(self, event: RaceEvent) -> None:
        """One more event."""
        match event:
            case RaceStart():
                self.start = event
            case LaneStep():
                self.lanes[event.lane].apply(event)
            case RaceFinish():
                self.finish = event

    @property
    def shown_seconds(self) -> float:
        """The compute time at which both lanes are shown: what each of them has reached, or has ended before."""
        lanes = self.lanes.values()
        running = [lane.seconds for lane in lanes if not lane.done]
        return min(running, default=max(lane.seconds for lane in lanes))

    @property
    def lead(self) -> float | None:
        """Plain seconds ÷ drafted seconds for the tokens that both have written by now; None for too few of them."""
        seconds = self.shown_seconds
        tokens = min(lane.by(seconds)[0] for lane in self.lanes.values())
        slow, fast = (seconds_at(self.lanes[name].marks, tokens) for name in LANES)
        return slow / fast if tokens >= FEWEST_TOKENS and fast else None

    @property
    def first(self) -> LaneName | None:
        """The lane that ended with less compute time; None while both run."""
        shown = self.shown_seconds
        done = [name for name, lane in self.lanes.items() if lane.whole and lane.seconds <= shown]
        return min(done, key=lambda name: self.lanes[name].seconds, default=None)
