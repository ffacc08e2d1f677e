"""The state of a race, a fold over its events (pure). Law: both lanes are shown at the same compute time.

A lane that had its turn is ahead of the other by that turn. What is shown of it is what it had done by the time that
the other has reached, so who is ahead in the picture is ahead.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from specdec_cli.events import Finish, Prefill, RoundDone, Start
from specdec_cli.race.events import DRAFTED, LANES, PLAIN, LaneName, LaneStep, RaceEvent, RaceFinish, RaceStart
from specdec_cli.race.measured import seconds_at

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
        return self.lead_by(self.shown_seconds)

    def lead_by(self, seconds: float) -> float | None:
        """As `lead`, at another compute time."""
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
