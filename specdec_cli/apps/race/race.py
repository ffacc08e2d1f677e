"""Plain and drafted decoding of one prompt on one machine: the lane with less compute time behind it goes next.

Both lanes share the weights alone. A lane runs in turns. Before a turn ends, everything that the lane has queued is
waited for on its own clock, so that no work of one lane is done in the other's time, or in nobody's. The price is that
a turn begins without the pass that an undisturbed reply would have queued ahead: once a turn, in both lanes alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from specdec_cli.apps.race.events import (
    DRAFTED,
    PLAIN,
    LaneName,
    LaneState,
    LaneStep,
    RaceEvent,
    RaceFinish,
    RaceStart,
    RaceState,
    measure_ratio,
)
from specdec_cli.core.events import Event, Finish, Prefill, Reading, RoundDone, Start
from specdec_cli.core.kinds import NONE
from specdec_cli.core.request import Request
from specdec_cli.engine import device
from specdec_cli.measure.audit import compare, measure, rows_of
from specdec_cli.measure.divergence import Divergence
from specdec_cli.session.meter import Stopwatch
from specdec_cli.session.session import LoadedPair, Session

# Chosen, not measured: shorter turns cost more of the launches ahead, longer ones make the picture jump.
TURN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RacePlan:
    """The drafted lane's `request`; `ids` is the prompt as tokens, `prompt` as text, continued as it is if `raw`."""

    request: Request
    ids: Sequence[int]
    prompt: str
    raw: bool = False
    turn_seconds: float = TURN_SECONDS

    @property
    def plain(self) -> Request:
        """The same request with nothing drafted."""
        return replace(self.request, k=0, drafter=NONE.name)


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
        """What this lane does in a turn: a step of reading, the draft's too, so that a person sees how far it is; else
        rounds for at least `least_seconds`, or to its end.
        """
        steps: list[LaneStep] = []
        with self._watch:
            end = self.seconds + least_seconds
            while not self.done:
                steps.append(self._step())
                if not isinstance(steps[-1].event, RoundDone) or self.seconds >= end:
                    break
            began = self._watch()
            self._settle()
            if self.has_read and isinstance(steps[-1].event, RoundDone | Reading) and not self.done:
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


Cancelled = Callable[[], bool]
# Tokens of a reply to the prompt's last tokens that is thrown away: kernels are compiled and pages read in it.
WARM_PROMPT, WARM_TOKENS = 64, 16


def race(pair: LoadedPair, plan: RacePlan, cancelled: Cancelled = lambda: False) -> Iterator[RaceEvent]:
    """RaceStart, each lane's own events as it computes them, RaceFinish.

    Raises: as `Session.reply`.
    """
    yield RaceStart(pair.pair.name, plan.prompt, plan.raw, device.device_name(), plan.turn_seconds)
    lanes, state = [], RaceState()
    for name, request in ((PLAIN, plan.plain), (DRAFTED, plan.request)):
        # Both kinds of decoding once: the first reply of a process is slower than any other.
        short = replace(request, max_tokens=min(WARM_TOKENS, request.max_tokens))
        for _ in pair.session().reply(plan.ids[-WARM_PROMPT:], short, cancelled, plan.raw):
            pass
        watch = Stopwatch(time.perf_counter)
        events = pair.session(clock=watch).reply(plan.ids, request, cancelled, plan.raw)
        lanes.append(Lane(name, events, watch, device.settle, pair.tokenizer.stop_tokens))
    for steps in turns(lanes, plan.turn_seconds):
        for step in steps:
            state.apply(step)
            yield step
    yield _finish(pair, plan, *state.lanes.values())


def _finish(pair: LoadedPair, plan: RacePlan, plain: LaneState, drafted: LaneState) -> RaceFinish:
    """The verdict. Texts that were broken off are compared as far as both go."""
    interrupted = any(lane.finish is None or lane.finish.reason == "interrupted" for lane in (plain, drafted))
    shorter = min(plain.tokens, drafted.tokens)
    common = common_tokens(plain.ids[:shorter], drafted.ids[:shorter])
    different = None
    if not interrupted or common < shorter:
        different = find_divergence(pair.session(), plan, plain.ids, drafted.ids)
    ks = [len(done.round.draft) for done in drafted.rounds]
    once = [done.round.draft_prefill_seconds for done in drafted.rounds]
    return RaceFinish(
        reason="interrupted" if interrupted else "done",
        tokens=(plain.tokens, drafted.tokens),
        passes=(len(plain.rounds), len(drafted.rounds)),
        measured=measure_ratio(plain.marks, drafted.marks, common, ks, once),
        divergence=different,
    )


def common_tokens(plain: Sequence[int], drafted: Sequence[int]) -> int:
    """Tokens before the first difference, or before the end of the shorter."""
    pairs = enumerate(zip(plain, drafted, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(plain), len(drafted)))


def find_divergence(
    session: Session, plan: RacePlan, plain: Sequence[int], drafted: Sequence[int]
) -> Divergence | None:
    """Where two answers that ended differ, None if they are equal.

    Both are compared with mlx-lm's own plain decoding of the same prompt: the gap is that of its scores. The limit is
    what rounding does to gaps in this text on this machine, which takes a few more passes to measure.
    """
    place = common_tokens(plain, drafted)
    if place >= max(len(plain), len(drafted)):
        return None
    steps = session.plain(plan.ids, replace(plan.plain, max_tokens=place + 1))
    answers = [plain[: place + 1], drafted[: place + 1]]
    text, (one, other) = compare(plan.ids, steps, answers, session.pair.tokenizer.piece)
    found = other or one
    if found is None or not math.isfinite(found.gap):
        return found
    rounding = measure(session, [("race", text)], rows_of([plan.request.k]))
    return replace(found, limit=rounding.limit(session.pair.effective(plan.request)["temperature"]))
