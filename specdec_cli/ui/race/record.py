"""A whole race, for pictures and pages (pure). Law: every time in it was recorded, and every text is harmless."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from specdec_cli.errors import UsageError
from specdec_cli.race.events import LANES, LaneName, RaceEvent, RaceFinish, RaceStart
from specdec_cli.race.state import LaneState, RaceState
from specdec_cli.ui.export.tokens import drawn
from specdec_cli.ui.race.sentences import settings
from specdec_cli.ui.race.spans import Author, Span, spans
from specdec_cli.ui.summary import SEPARATOR


@dataclass(frozen=True, slots=True)
class Written:
    """What one round wrote: when, how many tokens the lane had then, and its text; neighbours of one author joined."""

    seconds: float
    tokens: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """One lane. `late_from` is the compute time after which the other lane was done, None for the first one."""

    name: LaneName
    rounds: tuple[Written, ...]
    tokens: int
    passes: int
    seconds: float
    prefill_seconds: float
    late_from: float | None
    early_tokens: int
    """Tokens that it had when the first lane was done."""


@dataclass(frozen=True, slots=True)
class RaceRecord:
    """A race that ended."""

    state: RaceState
    start: RaceStart
    finish: RaceFinish
    lanes: tuple[LaneRecord, LaneRecord]

    @property
    def seconds(self) -> float:
        """Compute seconds of the lane that took longer."""
        return max(lane.seconds for lane in self.lanes)

    @property
    def tokens(self) -> int:
        """Those of the longer answer, at least 1."""
        return max(1, *(lane.tokens for lane in self.lanes))

    @property
    def setting(self) -> str:
        """The pair, K, the drafter and the machine in one line."""
        return drawn(SEPARATOR.join([*settings(self.state), self.start.machine]))

    @property
    def prompt(self) -> str:
        """The prompt, harmless."""
        return drawn(self.start.prompt)


def race_record(events: Iterable[RaceEvent]) -> RaceRecord:
    """Raises: UsageError for events that break off before the end."""
    state = RaceState()
    for event in events:
        state = state.apply(event)
    if state.start is None or state.finish is None:
        raise UsageError("the race broke off before its end, so there is nothing to draw", "race again")
    plain, drafted = (_lane(state, name) for name in LANES)
    return RaceRecord(state, state.start, state.finish, (plain, drafted))


def _lane(state: RaceState, name: LaneName) -> LaneRecord:
    lane, first = state.lane(name), state.first
    ended = state.lane(first).last_seconds if first else lane.last_seconds
    behind = first not in (None, name)
    return LaneRecord(
        name=name,
        rounds=tuple(_written(lane, place, name) for place in range(len(lane.rounds))),
        tokens=lane.tokens[-1] if lane.tokens else 0,
        passes=len(lane.rounds),
        seconds=lane.last_seconds,
        prefill_seconds=lane.prefill_seconds or 0.0,
        late_from=ended if behind else None,
        early_tokens=lane.tokens_by(ended) if behind else (lane.tokens[-1] if lane.tokens else 0),
    )


def _written(lane: LaneState, place: int, name: LaneName) -> Written:
    start = lane.start
    assert start is not None
    tail = lane.finish.text_tail if lane.finish and place == len(lane.rounds) - 1 else ""
    found = spans(start, lane.rounds[place], tail)
    joined = tuple(
        Span(drawn("".join(span.text for span in group)), author)
        for author, group in groupby(found, key=lambda span: span.author if start.k else Author.OWN)
    )
    return Written(lane.seconds[place], lane.tokens[place], joined)
