"""The stream of a race, its state, and its ratio (pure). Frozen values; every display and picture of a race is made
from them alone.

One JSON object a line: `race` first, then the two lanes' own events with the lane's name and its seconds, then
`race_finish`. Fields may be added, never renamed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from math import exp, log
from typing import Any, ClassVar, Literal

from specdec_cli.audit.divergence import Divergence
from specdec_cli.events import Event, Failure, Finish, Prefill, RoundDone, Start, to_dict
from specdec_cli.gain import FEWEST_ROUNDS
from specdec_cli.meter import LEAST_SECONDS, kind_means, t_interval

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


BLOCKS = 8

Marks = Sequence[tuple[float, int]]
"""(seconds, tokens) of one lane after each of its rounds, both growing."""


def measure_ratio(
    plain: Marks, drafted: Marks, tokens: int, ks: Sequence[int] = (), once: Sequence[float] = ()
) -> Measured | None:
    """The ratio over the first `tokens` tokens of both lanes; None without any.

    `ks` are the tokens that each round of the drafted lane drafted, `once` those of its seconds that are paid once a
    reply: they count, but are no disturbance.
    """
    slow, fast = seconds_at(plain, tokens), seconds_at(drafted, tokens)
    if tokens < 1 or slow <= 0 or fast <= 0:
        return None
    low = high = None
    plain, drafted = rounds_until(plain, slow), rounds_until(drafted, fast)
    if min(len(plain), len(drafted)) >= FEWEST_ROUNDS:
        one = block_disturbances(plain, [0] * len(plain), ())
        other = block_disturbances(drafted, ks or [0] * len(drafted), once)
        _, half = t_interval([[above - below for above, below in zip(one, other, strict=True)]])
        low, high = exp(log(slow / fast) - half), exp(log(slow / fast) + half)
    return Measured(tokens, slow, fast, slow / fast, low, high)


def seconds_at(marks: Marks, tokens: float) -> float:
    """When a lane had written so many tokens; inside a round in proportion. The last mark's where it never had."""
    place = bisect_left(marks, tokens, key=lambda mark: mark[1])
    if place == len(marks):
        return marks[-1][0] if marks else 0.0
    (before, fewer), (after, more) = marks[place - 1] if place else (0.0, 0), marks[place]
    return before + (after - before) * (tokens - fewer) / (more - fewer)


def rounds_until(marks: Marks, end_seconds: float) -> Marks:
    """Those of a lane that began before."""
    return marks[: bisect_left(marks, end_seconds, key=lambda mark: mark[0]) + 1]


def block_disturbances(marks: Marks, ks: Sequence[int], once: Sequence[float]) -> list[float]:
    """[BLOCKS] logarithms of what each eighth of a lane's time took over what its rounds usually take."""
    taken = [after - before for before, after in pairwise([0.0, *(seconds for seconds, _ in marks)])]
    paid_once = [*once[: len(taken)], *[0.0] * (len(taken) - len(once))]
    taken = [max(seconds - paid, LEAST_SECONDS) for seconds, paid in zip(taken, paid_once, strict=True)]
    sums = [[0.0, 0.0] for _ in range(BLOCKS)]
    reached, total = 0.0, sum(taken)
    for seconds, usual in zip(taken, kind_means(ks[: len(taken)], taken), strict=True):
        block = sums[min(int(BLOCKS * (reached + seconds / 2) / total), BLOCKS - 1)]
        block[0], block[1], reached = block[0] + seconds, block[1] + usual, reached + seconds
    return [log(seconds / usual) if usual else 0.0 for seconds, usual in sums]


# Fewer tokens say nothing about who is ahead.
FEWEST_TOKENS = 8


@dataclass(frozen=True, slots=True)
class LaneState:
    """One lane so far: its rounds, with the lane's `seconds` and `tokens` after each of them."""

    start: Start | None = None
    prefill_seconds: float | None = None
    rounds: tuple[RoundDone, ...] = ()
    seconds: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    done: bool = False

    def apply(self, step: LaneStep) -> LaneState:
        match step.event:
            case Start():
                return replace(self, start=step.event)
            case Prefill(seconds=seconds):
                return replace(self, prefill_seconds=seconds)
            case RoundDone():
                tokens = (self.tokens[-1] if self.tokens else 0) + len(step.event.round.emitted)
                return replace(
                    self,
                    rounds=(*self.rounds, step.event),
                    seconds=(*self.seconds, step.lane_seconds),
                    tokens=(*self.tokens, tokens),
                    done=step.done,
                )
            case Finish():
                return replace(self, finish=step.event, done=True)
        return self

    @property
    def last_seconds(self) -> float:
        return self.seconds[-1] if self.seconds else 0.0

    @property
    def ids(self) -> list[int]:
        """Everything it emitted."""
        return [token for done in self.rounds for token in done.round.emitted]

    @property
    def marks(self) -> list[tuple[float, int]]:
        return list(zip(self.seconds, self.tokens, strict=True))

    def rounds_by(self, seconds: float) -> int:
        """How many of its rounds were done by then."""
        return bisect_right(self.seconds, seconds)

    def tokens_by(self, seconds: float) -> int:
        done = self.rounds_by(seconds)
        return self.tokens[done - 1] if done else 0


@dataclass(frozen=True, slots=True)
class RaceState:
    """Both lanes so far."""

    start: RaceStart | None = None
    plain: LaneState = field(default_factory=LaneState)
    drafted: LaneState = field(default_factory=LaneState)
    finish: RaceFinish | None = None

    def apply(self, event: RaceEvent) -> RaceState:
        match event:
            case RaceStart():
                return RaceState(start=event)
            case LaneStep(lane="plain"):
                return replace(self, plain=self.plain.apply(event))
            case LaneStep(lane="drafted"):
                return replace(self, drafted=self.drafted.apply(event))
            case RaceFinish():
                return replace(self, finish=event)
        return self

    def lane(self, name: LaneName) -> LaneState:
        return self.plain if name == PLAIN else self.drafted

    @property
    def shown_seconds(self) -> float:
        """The compute time at which both lanes are shown: what each of them has reached, or has ended before."""
        running = [lane.last_seconds for lane in (self.plain, self.drafted) if not lane.done]
        return min(running, default=max(self.plain.last_seconds, self.drafted.last_seconds))

    @property
    def lead(self) -> float | None:
        """Plain seconds ÷ drafted seconds for the tokens that both have written by now; None for too few of them."""
        seconds = self.shown_seconds
        tokens = min(self.plain.tokens_by(seconds), self.drafted.tokens_by(seconds))
        if tokens < FEWEST_TOKENS:
            return None
        fast = seconds_at(self.drafted.marks, tokens)
        return seconds_at(self.plain.marks, tokens) / fast if fast else None

    @property
    def first(self) -> LaneName | None:
        """The lane that ended with less compute time; None while both run."""
        shown = self.shown_seconds
        done = [name for name in LANES if self.lane(name).done and self.lane(name).last_seconds <= shown]
        return min(done, key=lambda name: self.lane(name).last_seconds, default=None)

    @property
    def photo_finish(self) -> tuple[LaneName, int] | None:
        """The other lane, and the tokens it had written when the first one was done."""
        if self.first is None:
            return None
        other: LaneName = DRAFTED if self.first == PLAIN else PLAIN
        return other, self.lane(other).tokens_by(self.lane(self.first).last_seconds)

    @property
    def expected_tokens(self) -> int:
        """The length of the tracks: the longest answer allowed, then the one that was written."""
        starts = [lane.start.max_tokens for lane in (self.plain, self.drafted) if lane.start]
        ended = [lane.tokens[-1] for lane in (self.plain, self.drafted) if lane.done and lane.tokens]
        return max(ended, default=max(starts, default=1)) or 1
