"""Lanes made of numbers: a clock that moves by what a round takes, and races of scripted rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fakes.ui_script import PREFILL, START, drafted
from specdec_cli.apps.race.events import (
    DRAFTED,
    PLAIN,
    LaneName,
    LaneStep,
    RaceEvent,
    RaceFinish,
    RaceStart,
    RaceState,
    measure_ratio,
)
from specdec_cli.core.events import Event, Finish, Reading
from specdec_cli.core.stats import Stats


class Clock:
    """Time passes only where somebody works, sleeps, or moves it, and by `tick` with every look at it."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeReply:
    """A reply of plain rounds that take `seconds` each, and leave `queued` seconds of work on the device."""

    def __init__(self, clock: Clock, seconds: Sequence[float], queued: float = 0.0) -> None:
        self.clock, self.seconds, self.queued, self.waiting = clock, seconds, queued, 0.0
        self.asked_for_the_end = False

    def events(self) -> Iterator[Event]:
        yield replace(START, max_tokens=len(self.seconds), k=0)
        self.clock.now += 0.25
        yield Reading("target", 30, START.prompt_tokens)
        self.clock.now += 0.25
        yield PREFILL
        for place, seconds in enumerate(self.seconds):
            self.clock.now += seconds
            self.waiting = self.queued
            yield drafted(place, [], 0, "x")
        self.asked_for_the_end = True
        self.clock.now += 7.0
        yield Finish("length", "x" * len(self.seconds), (), "", Stats().to_dict())

    def settle(self) -> None:
        self.clock.now += self.waiting
        self.waiting = 0.0


RAW = RaceStart("demo", "def", True, "Fake M9", 0.1)


def lane_steps(name: LaneName, rounds: Sequence[Sequence[str]], seconds: float = 0.02) -> list[LaneStep]:
    """A lane whose rounds accept all of their pieces but the last, which is the target's own."""
    start = replace(START, max_tokens=sum(map(len, rounds)))
    start = start if name == DRAFTED else replace(start, k=0, drafter="none", draft=None)
    steps = [LaneStep(name, start, 0.0), LaneStep(name, PREFILL, 0.0)]
    for place, (*guessed, own) in enumerate(rounds):
        done = drafted(place, guessed, len(guessed), own)
        steps.append(LaneStep(name, done, (place + 1) * seconds, place + 1 == len(rounds)))
    finish = Finish("length", "".join(piece for pieces in rounds for piece in pieces), (), "", Stats().to_dict())
    return [*steps, LaneStep(name, finish, len(rounds) * seconds, True)]


def scripted(
    pieces: Sequence[str] = (" a", " b", " c", "\n"),
    rounds: int = 8,
    drafted_seconds: float = 0.04,
    start: RaceStart = RAW,
) -> list[RaceEvent]:
    """A race in which every drafted round accepts all of `pieces` but the last; a plain one takes 20 ms."""
    found: list[RaceEvent] = [start, *lane_steps(PLAIN, [[piece] for piece in pieces] * rounds)]
    found += lane_steps(DRAFTED, [pieces] * rounds, drafted_seconds)
    state = RaceState()
    for event in found:
        state.apply(event)
    plain, fast = state.lanes.values()
    ratio = measure_ratio(plain.marks, fast.marks, plain.tokens)
    return [*found, RaceFinish("done", (plain.tokens, fast.tokens), (len(plain.rounds), rounds), ratio)]
