"""Two lanes on one machine. Law: the lane with less compute time behind it goes next, and pays for what it queued.

A lane runs in turns. Before a turn ends, everything that the lane has queued is waited for on its own clock, so that
no work of one lane is done in the other's time, or in nobody's. The price is that a turn begins without the pass that
an undisturbed reply would have queued ahead: once a turn, in both lanes alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specdec_cli.events import Event, Finish, Prefill, RoundDone
from specdec_cli.race.events import LaneName, LaneStep

Clock = Callable[[], float]
# Shorter turns cost more of the launches ahead, longer ones make the picture jump (docs/race.md has what was measured).
TURN_SECONDS = 0.1


class Stopwatch:
    """A clock that stands still while its lane waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._kept + (0.0 if self._since is None else self._clock() - self._since)

    def __enter__(self) -> Stopwatch:
        self._since = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept, self._since = self(), None


class Lane:
    """One reply, taken in turns. `seconds` is its compute time since it has read the prompt."""

    def __init__(self, name: LaneName, events: Iterator[Event], watch: Stopwatch, settle: Callable[[], None]) -> None:
        """`events` must read no clock but `watch`; `settle` returns when the device has nothing left to do."""
        self.name, self.seconds, self.ended = name, 0.0, False
        self._events, self._watch, self._settle = events, watch, settle

    def turn(self, least_seconds: float) -> list[LaneStep]:
        """What this lane does in a turn: its prompt alone, else rounds for at least `least_seconds`, or to its end."""
        steps: list[LaneStep] = []
        with self._watch:
            end = self.seconds + least_seconds
            while not self.ended:
                event, seconds = self._next()
                self.ended = isinstance(event, Finish)
                # What a session does after its last round is no decoding.
                self.seconds += seconds if isinstance(event, RoundDone) else 0.0
                steps.append(LaneStep(self.name, event, self.seconds))
                if isinstance(event, Prefill) or self.seconds >= end:
                    break
            self._wait(billed=not self.ended and isinstance(steps[-1].event, RoundDone))
        return steps

    def _next(self) -> tuple[Event, float]:
        began = self._watch()
        event = next(self._events)
        return event, self._watch() - began

    def _wait(self, billed: bool) -> None:
        began = self._watch()
        self._settle()
        self.seconds += self._watch() - began if billed else 0.0


def turns(lanes: Sequence[Lane], turn_seconds: float = TURN_SECONDS) -> Iterator[list[LaneStep]]:
    """The turns of all lanes until each has ended; between equals the first one goes."""
    while waiting := [lane for lane in lanes if not lane.ended]:
        yield min(waiting, key=lambda lane: lane.seconds).turn(turn_seconds)
