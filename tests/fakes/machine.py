"""Machines, and a text that is played as the decode loop does: seconds without models. (pure, seeded)

Verify curves are published figures (reference notes §4): a row count maps to the cost of a pass in plain steps. The
text decides by its position alone whether a draft token may be accepted, so every controller meets the same text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp

from specdec_cli.core.events import Round
from specdec_cli.core.gain import TYPICAL_ROW_COST, interpolate
from specdec_cli.core.request import MAX_DRAFT
from specdec_cli.engine.planning.costs import Costs
from specdec_cli.engine.planning.history import History
from specdec_cli.engine.planning.policy import Plan, Situation, plan


@dataclass(frozen=True)
class Machine:
    """Costs in plain steps (`plain_seconds` each); noise is log-normal; `speed(seconds)` multiplies every cost."""

    name: str
    draft_step: float
    verify: Mapping[int, float]
    plain_seconds: float = 0.02
    noise: float = 0.03
    spikes: float = 0.01
    spike: float = 3.0
    # Launching a pass into an empty queue (a plain round after a drafted one).
    restart: float = 0.08
    # The draft's reading of one token of context: prompts are read about eight tokens a step.
    read_token: float | None = None
    speed: Callable[[float], float] = field(default=lambda seconds: 1.0)

    def rows(self, n: int) -> float:
        return interpolate({**self.verify, 1: 1.0}, n, 0.0)

    def reading(self, tokens: int) -> float:
        return tokens * (self.draft_step / 8 if self.read_token is None else self.read_token)


MACHINES = (
    Machine("M1 Pro", 0.10, {2: 1.9, 3: 2.8, 4: 3.7, 8: 7.4}),
    Machine("M2 Ultra", 0.08, {2: 1.55, 4: 2.7, 8: 5.2}),
    Machine("M3 Max, 24 % a row", 0.08, {2: 1.24, 8: 2.68}),
    Machine("M3 Ultra (mlx 4265)", 0.08, {4: 1.0, 6: 1.28, 8: 1.57}),
    Machine("M4 Pro (mlx 3852)", 0.10, {2: 0.99, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84}),
    Machine("M5 Max, 70B (mlx 3791)", 0.06, {3: 1.11, 5: 1.41, 8: 2.20}),
    Machine("CPU, inflated pair", 0.088, {2: 1.05, 4: 1.03, 8: 1.17}),
    Machine("CPU, demo pair", 0.28, {2: 1.2, 5: 1.8, 8: 2.4}),
)
BY_NAME = {machine.name: machine for machine in MACHINES}


def assumed(ratio: float, row: float = TYPICAL_ROW_COST) -> Costs:
    """Costs where a draft step is `ratio` of a plain one, and each further row costs `row`."""
    return Costs({2: 1 + row}, {1: ratio}, ratio / 8)


@dataclass(frozen=True)
class Text:
    """Stretches of (tokens, conditional acceptance rate of position 1, its factor a position), repeated for ever."""

    name: str
    stretches: tuple[tuple[int, float, float], ...]

    def rate(self, at: int, depth: int) -> float:
        """P(draft token `depth` = 1 … that would be text token `at` is accepted | those before it were)."""
        at %= sum(tokens for tokens, _, _ in self.stretches)
        for tokens, first, factor in self.stretches:
            if at < tokens:
                return first * factor ** (depth - 1)
            at -= tokens
        raise AssertionError


CODE = Text("code", ((1, 0.82, 0.98),))
PROSE = Text("prose", ((1, 0.58, 0.95),))
COPY = Text("copy-heavy", ((1, 0.97, 1.0),))
HOSTILE = Text("hostile", ((1, 0.02, 1.0),))
SWITCHING = Text("switching", ((300, 0.90, 0.99), (300, 0.10, 0.9)))
TEXTS = (CODE, PROSE, COPY, HOSTILE, SWITCHING)


@dataclass(frozen=True)
class Recorded:
    """A text in which every draft token was found right or wrong: a draft that was right so far has read the text."""

    name: str
    hits: tuple[bool, ...]

    def rate(self, at: int, depth: int) -> float:
        return float(self.hits[at % len(self.hits)])


@dataclass
class Play:
    """What came of it: decode seconds, draft reading the prompt, and K of every round."""

    decode_seconds: float = 0.0
    prefill_seconds: float = 0.0
    ks: list[int] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.decode_seconds + self.prefill_seconds


def play(
    machine: Machine,
    text: Text | Recorded,
    chooser: int | History,
    tokens: int,
    seed: int,
    prompt: int = 64,
    began: float = 0.0,
    disturbed: Callable[[int, float, random.Random], float] = lambda index, seconds, luck: 1.0,
) -> Play:
    """One reply of `tokens` tokens, at a fixed K or as planned, as engine/decode.py runs it: a plain round is followed
    by one that was planned before it was read; the draft reads the prompt before the first drafted round and catches
    up inside the first one after plain rounds.

    `disturbed(round, seconds, luck)` multiplies all costs of a round."""
    luck, clock = random.Random(seed), random.Random(seed + 1)
    lots = [luck.random() for _ in range(tokens + MAX_DRAFT + 1)]
    bad_luck = random.Random(seed + 2)
    done, left, at, prefilled, queued, lag, slower = Play(), tokens, 0, False, False, 0, 1.0

    def cost(steps: float) -> float:
        spike = machine.spike if clock.random() < machine.spikes else 1.0
        now = machine.speed(began + done.seconds) * slower
        return steps * machine.plain_seconds * exp(clock.gauss(0, machine.noise)) * spike * now

    def ask(first: bool = False, in_flight: int = 0) -> Plan:
        most = max(min(left - 1 - in_flight, MAX_DRAFT), 0)
        if isinstance(chooser, int):
            return Plan("model", 0 if first else min(chooser, most))
        return plan(chooser.situation(Situation(most, first=first, in_flight=in_flight, network="model")))

    planned = ask(first=True)
    while left:
        k, draft_seconds, prefill_seconds, followed = planned.k, 0.0, 0.0, False
        if isinstance(chooser, History):
            chooser.follow(planned)
        slower = disturbed(len(done.ks), done.seconds, bad_luck)
        if k:
            if not prefilled:
                prefill_seconds, prefilled, lag = cost(machine.reading(prompt + at)), True, 0
            draft_seconds = cost(k * machine.draft_step + machine.reading(lag))
            verify_seconds = cost(machine.rows(k + 1))
            lag = 0
        else:
            verify_seconds = cost(1.0 if queued else 1.0 + machine.restart)
            lag += 1
        accepted = 0
        while accepted < k and lots[at + accepted] < text.rate(at + accepted, accepted + 1):
            accepted += 1
        if not k and left > 1:
            planned = ask(in_flight=1)
            followed = not planned.k
        at, left = at + accepted + 1, left - accepted - 1
        done.ks.append(k)
        done.decode_seconds += draft_seconds + verify_seconds
        done.prefill_seconds += prefill_seconds
        if isinstance(chooser, History):
            chooser.observe(
                Round(
                    index=len(done.ks) - 1,
                    drafter="model" if k else "none",
                    draft=tuple(range(k)),
                    accepted=accepted,
                    next=0,
                    emitted=tuple(range(accepted + 1)),
                    draft_seconds=draft_seconds,
                    verify_seconds=verify_seconds,
                    draft_prefill_seconds=prefill_seconds,
                ),
                queued,
                followed,
            )
        if not followed and left:
            planned = ask()
        queued = followed
    return done


# Apple's generations. Figures of single machines where there are any (`measured`), else what the
# kernels' steps suggest: such a curve is an estimate, and is played at half and at twice its cost of further rows too.
# They are written down apart from what `specdec_cli.engine.planning.chips` assumes, and differ from it.

# (name of the device, rows -> plain steps, measured)
CURVES = (
    ("Apple M1", {2: 1.9, 3: 2.8, 4: 3.7, 5: 4.6, 6: 5.0, 32: 5.2}, False),
    ("Apple M2 Pro", {2: 1.55, 4: 2.7, 6: 3.6, 32: 3.8}, False),
    ("Apple M2 Ultra", {2: 1.55, 4: 2.7, 8: 5.2, 12: 5.3, 32: 5.4}, False),
    ("Apple M3 Max", {2: 1.02, 4: 1.28, 5: 1.45, 6: 2.0, 8: 2.5, 9: 3.1, 13: 3.9, 32: 4.0}, True),
    ("Apple M3 Ultra", {4: 1.02, 6: 1.28, 8: 1.57, 18: 2.6, 32: 2.7}, True),
    ("Apple M4", {2: 1.1, 4: 1.5, 5: 1.7, 6: 2.2, 8: 2.7, 13: 3.9, 32: 4.0}, False),
    ("Apple M4 Pro", {2: 1.02, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84, 13: 3.9, 32: 4.0}, True),
    ("Apple M5 Max", {2: 1.1, 4: 1.29, 5: 1.5, 8: 2.46, 13: 3.6, 32: 3.7}, True),
    # Four rows went from 37 to 50 ms in three runs, one row stayed (mlxcel issue 1182).
    ("Apple M5 Max, hot", {2: 1.2, 4: 1.62, 5: 2.0, 8: 3.3, 13: 4.5, 32: 4.7}, True),
)
