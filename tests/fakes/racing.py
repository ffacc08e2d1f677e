"""Lanes made of numbers: a clock that moves by what a round takes, and races of scripted rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fakes.ui_script import PREFILL, START, drafted
from specdec_cli.events import Event, Finish
from specdec_cli.race.events import DRAFTED, PLAIN, LaneStep, RaceEvent, RaceFinish, RaceStart, RaceState, measure_ratio
from specdec_cli.stats import Stats


class Clock:
    """Time passes only where somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeReply:
    """A reply of plain rounds that take `seconds` each, and leave `queued` seconds of work on the device."""

    def __init__(self, clock: Clock, seconds: Sequence[float], queued: float = 0.0) -> None:
        self.clock, self.seconds, self.queued, self.waiting = clock, seconds, queued, 0.0
        self.asked_for_the_end = False

    def events(self) -> Iterator[Event]:
        yield replace(START, max_tokens=len(self.seconds), k=0)
        self.clock.now += 0.5
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


def scripted(
    pieces: Sequence[str] = (" a", " b", " c", "\n"),
    rounds: int = 8,
    plain_seconds: float = 0.02,
    drafted_seconds: float = 0.04,
    start: RaceStart = RAW,
    reason: str = "length",
) -> list[RaceEvent]:
    """A race in which every drafted round accepts all of `pieces` but the last, which is the target's own."""
    *guessed, own = pieces
    tokens = rounds * len(pieces)
    text = "".join(pieces) * rounds
    finish = Finish(reason, text, (), "", Stats().to_dict())
    begun = replace(START, max_tokens=tokens)
    lanes = {
        PLAIN: [replace(begun, k=0, drafter="none", draft=None), PREFILL],
        DRAFTED: [begun, PREFILL],
    }
    lanes[PLAIN] += [drafted(place, [], 0, pieces[place % len(pieces)]) for place in range(tokens)]
    lanes[DRAFTED] += [drafted(place, list(guessed), len(guessed), own) for place in range(rounds)]
    found: list[RaceEvent] = [start]
    for name, seconds in ((PLAIN, plain_seconds), (DRAFTED, drafted_seconds)):
        done = len(lanes[name]) - 1
        found += [
            LaneStep(name, event, max(place - 1, 0) * seconds, place == done) for place, event in enumerate(lanes[name])
        ]
        found.append(LaneStep(name, finish, (done - 1) * seconds, True))
    state = RaceState()
    for event in found:
        state = state.apply(event)
    ratio = measure_ratio(state.plain.marks, state.drafted.marks, tokens)
    return [*found, RaceFinish("done", (tokens, tokens), (tokens, rounds), ratio)]
