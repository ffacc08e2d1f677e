"""Two lanes on one machine. Law: the lane with less compute time behind it goes next, and pays for what it queued.

A lane runs in turns. Before a turn ends, everything that the lane has queued is waited for on its own clock, so that
no work of one lane is done in the other's time, or in nobody's. The price is that a turn begins without the pass that
an undisturbed reply would have queued ahead: once a turn, in both lanes alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from specdec_cli.events import Event, Finish, Prefill, Reading, RoundDone, Start
from specdec_cli.race.events import LaneName, LaneStep
from specdec_cli.session.meter import Stopwatch

Clock = Callable[[], float]
# Chosen, not measured: shorter turns cost more of the launches ahead, longer ones make the picture jump.
TURN_SECONDS = 0.1


class Lane:
    """One reply, taken in turns. `seconds` is its compute time after the prompt; it is `done` after its last round.

    What a session does after its last round is no decoding, and it empties mlx's cache of buffers, which the other lane
    still needs. So the end is asked for with `end`, after both lanes are done.
    """

    def __init__(
        self,
        name: LaneName,
        events: Iterator[Event],
        watch: Stopwatch,
        settle: Callable[[], None],
        stop_tokens: Collection[int] = (),
    ) -> None:
        """`events` must read no clock but `watch`; `settle` returns when the device has nothing left to do."""
        self.name, self.seconds = name, 0.0
        self.has_read = self.done = self.ended = False
        self._events, self._watch, self._settle, self._stop_tokens = events, watch, settle, stop_tokens
        self._tokens_left = 0

    def turn(self, least_seconds: float) -> list[LaneStep]:
        """What this lane does in a turn: its prompt alone, else rounds for at least `least_seconds`, or to its end."""
        steps: list[LaneStep] = []
        with self._watch:
            end = self.seconds + least_seconds
            while not self.done:
                steps.append(self._step())
                if isinstance(steps[-1].event, Prefill) or self.seconds >= end:
                    break
            began = self._watch()
            self._settle()
            if isinstance(steps[-1].event, RoundDone) and not self.done:
                self.seconds += self._watch() - began
        return steps

    def end(self) -> list[LaneStep]:
        """The finish event, unless it came already."""
        with self._watch:
            return [] if self.ended else [self._step()]

    def _step(self) -> LaneStep:
        began = self._watch()
        event = next(self._events)
        match event:
            case Start(max_tokens=max_tokens):
                self._tokens_left = max_tokens
            case Prefill():
                self.has_read = True
            case Reading() if self.has_read:  # the draft reads, which is part of the next round
                self.seconds += self._watch() - began
            case RoundDone(round=judged):
                self.seconds += self._watch() - began
                self._tokens_left -= len(judged.emitted)
                self.done = self._tokens_left <= 0 or judged.emitted[-1] in self._stop_tokens
            case Finish():  # before the last round was known to be it: a stop string, or an interruption
                self.done = self.ended = True
        return LaneStep(self.name, event, self.seconds, self.done)


def turns(lanes: Sequence[Lane], turn_seconds: float = TURN_SECONDS) -> Iterator[list[LaneStep]]:
    """The turns of all lanes until each is done, then their ends. Between equals who has not read the prompt goes."""
    while waiting := [lane for lane in lanes if not lane.done]:
        yield min(waiting, key=lambda lane: (lane.seconds, lane.has_read)).turn(turn_seconds)
    for lane in lanes:
        yield lane.end()
