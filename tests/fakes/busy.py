"""Simulated machines that are busy by the second, and replies on them with their paired truth.

The truth is a plain pass for every emitted token, taken at the very moment of the round that emitted it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean

from specdec_cli.core.events import Round
from specdec_cli.core.gain import Gain
from specdec_cli.core.speedup import CostMemo, Meter, t_interval

TOKENS = 128
# What the product may afford amid a reply of this length, and what it measures at its end.
AMID_STEPS, LAST_STEPS = 1, 4


def quiet(machine: "Machine", one_row: bool) -> float:
    """4 % of scatter; one pass in a hundred takes three times as long."""
    return exp(machine.luck.gauss(0, 0.04)) * (3.0 if machine.luck.random() < 0.01 else 1.0)


def switching(machine: "Machine", one_row: bool) -> float:
    """Half speed for a second or so at a time."""
    return (2.0 if machine.busy else 1.0) * exp(machine.luck.gauss(0, 0.05))


def loaded(machine: "Machine", one_row: bool) -> float:
    """As `switching`, and while busy every pass scatters by 35 %."""
    return exp(log(2.0) + machine.luck.gauss(0, 0.35)) if machine.busy else exp(machine.luck.gauss(0, 0.05))


def drifting(machine: "Machine", one_row: bool) -> float:
    """Up and down by 30 % over some seconds."""
    return 1 + 0.3 * abs((machine.now / 4) % 2 - 1) + machine.luck.gauss(0, 0.05)


def restless(machine: "Machine", one_row: bool) -> float:
    """Other programs come and go: 20 % of scatter, three in a hundred three times as long."""
    return exp(machine.luck.gauss(0, 0.2)) * (3.0 if machine.luck.random() < 0.03 else 1.0)


def uneven(machine: "Machine", one_row: bool) -> float:
    """As `switching`, but passes of several rows lose less: by a fifth, a round costs fewer plain steps while busy."""
    return ((1.8 if one_row else 1.4) if machine.busy else 1.0) * exp(machine.luck.gauss(0, 0.05))


NOISES = (quiet, switching, loaded, drifting, restless, uneven)


@dataclass
class Machine:
    """Its clock, and what a pass takes at each moment; `switches` are the seconds when other work begins or ends."""

    luck: random.Random
    noise: object
    now: float = 0.0
    switches: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        at = 0.0
        while at < 60:
            at += self.luck.expovariate(1.0)
            self.switches.append(at)

    @property
    def busy(self) -> bool:
        return sum(at < self.now for at in self.switches) % 2 == 1

    def passed(self, seconds: float, counted: bool = True, one_row: bool = True) -> float:
        """What a pass of `seconds` takes now; the clock goes on if it is `counted`."""
        took = seconds * self.noise(self, one_row)
        self.now += took if counted else 0.0
        return took


@dataclass
class Case:
    """A pair on a machine: a round of K costs `steps` plain steps."""

    k: int
    steps: float
    plain_seconds: float
    acceptance: float


def a_round(k: int, accepted: int, seconds: float) -> Round:
    return Round(1, "model" if k else "none", tuple(range(k)), accepted, 0, tuple(range(accepted + 1)), 0.0, seconds)


def ignorant_gain(steps: list[float], rounds: list[float], tokens: int) -> Gain:
    """The control: steps of one moment against all rounds, and no doubt but by how both scatter."""
    ratio = fmean(steps) * tokens / sum(rounds)
    _, half = t_interval([[log(seconds) for seconds in group] for group in (steps, rounds)])
    return Gain(ratio, ratio / exp(2 * half), ratio * exp(2 * half))


def played(machine: Machine, case: Case, memo: CostMemo) -> tuple[Meter, Gain, float, float]:
    """(the meter, the control's gain, the paired truth, the share that pays by it)."""
    meter, plain, tokens = Meter(memo), 0.0, 0
    rounds: list[float] = []
    while tokens < TOKENS:
        accepted = 0
        while accepted < case.k and machine.luck.random() < case.acceptance:
            accepted += 1
        plain += sum(machine.passed(case.plain_seconds, counted=False) for _ in range(accepted + 1))
        rounds.append(machine.passed(case.steps * case.plain_seconds, one_row=False))
        meter.fold(a_round(case.k, accepted, rounds[-1]))
        tokens += accepted + 1
        if len(rounds) == 12:
            machine.passed(case.plain_seconds)
            meter.add_plain_steps([machine.passed(case.plain_seconds) for _ in range(AMID_STEPS)])
    machine.passed(case.plain_seconds)
    last = [machine.passed(case.plain_seconds) for _ in range(LAST_STEPS)]
    meter.add_plain_steps(last)
    pays_from = max(tokens * sum(rounds) / plain / len(rounds) - 1, 0.0) / case.k
    return meter, ignorant_gain(last, rounds, tokens), plain / sum(rounds), pays_from


def simulated(replies: int) -> Iterator[tuple[Gain | None, Gain, float, float]]:
    """Replies on machines of every kind, each after none to five earlier ones: the gain, and the rest as `played`."""
    for seed in range(replies):
        luck = random.Random(seed)
        machine = Machine(luck, NOISES[seed % len(NOISES)])
        case = Case(
            luck.choice((2, 4, 6)), luck.uniform(1.1, 3.0), luck.choice((0.01, 0.02, 0.04)), luck.uniform(0.4, 0.9)
        )
        memo = CostMemo()
        for _ in range(luck.randrange(6)):
            memo = played(machine, case, memo)[0].learn()
            machine.now = luck.uniform(0, 20)
        meter, *rest = played(machine, case, memo)
        yield meter.gain(), *rest
