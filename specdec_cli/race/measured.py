"""The ratio of a race (pure). Law: the same tokens on both sides, and no ratio without what chance could make of it.

The seconds are measured, so only their disturbances are in doubt: what another race of the same text on this machine
would give. The lanes took turns, so they are paired: the compute time is cut into blocks, each with the rounds of both
lanes, and what disturbs a block disturbs both. Within a block the rounds' seconds are compared with the mean of the
lane's rounds that drafted as many tokens, so that words which are harder to guess are no disturbance. The interval is
the jackknife's over blocks (Quenouille 1956, Tukey 1958) with Student's t, on the logarithm of the ratio. Blocks in
which one lane was already done count for the other alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt
from statistics import fmean

from specdec_cli.gain import FEWEST_ROUNDS
from specdec_cli.race.events import Measured
from specdec_cli.student import t_quantile

# Rounds of a K without which K has no mean of its own.
FEWEST_OF_K = 3
# Of the lane that took longer. In simulations (tests/race/test_measured.py) more of them lost coverage to slow drifts.
BLOCKS = 8

Marks = Sequence[tuple[float, int]]
"""(seconds, tokens) of one lane after each of its rounds, both growing."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A round: when it ended, what it took, and what it was expected to take; in seconds of its lane."""

    at: float
    seconds: float
    expected: float


def measured(
    plain: Marks, drafted: Marks, tokens: int, ks: Sequence[int] = (), once: Sequence[float] = ()
) -> Measured | None:
    """The ratio over the first `tokens` tokens of both lanes; None without any.

    `ks` are the tokens that each round of the drafted lane drafted, `once` those of its seconds that are paid once a
    reply: they count, but are no disturbance.
    """
    slow, fast = seconds_at(plain, tokens), seconds_at(drafted, tokens)
    if tokens < 1 or slow <= 0 or fast <= 0:
        return None
    sides = _costs(plain, [0] * len(plain), ()), _costs(drafted, ks or [0] * len(drafted), once)
    kept = [[cost for cost in side if cost.at <= end] for side, end in zip(sides, (slow, fast), strict=True)]
    low = high = None
    if min(map(len, kept)) >= FEWEST_ROUNDS:
        half = _half_width(kept[0], kept[1], max(slow, fast) / BLOCKS)
        low, high = exp(log(slow / fast) - half), exp(log(slow / fast) + half)
    return Measured(tokens, slow, fast, slow / fast, low, high)


def seconds_at(marks: Marks, tokens: float) -> float:
    """When a lane had written so many tokens; inside a round in proportion. The last mark's where it never had."""
    place = bisect_left(marks, tokens, key=lambda mark: mark[1])
    if place == len(marks):
        return marks[-1][0] if marks else 0.0
    (before, fewer), (after, more) = marks[place - 1] if place else (0.0, 0), marks[place]
    return before + (after - before) * (tokens - fewer) / (more - fewer)


def _costs(marks: Marks, ks: Sequence[int], once: Sequence[float]) -> list[Cost]:
    """The lane's rounds with the mean cost of its rounds of the same K; where these are few, a line through all."""
    taken = [after - before for before, after in pairwise([0.0, *(seconds for seconds, _ in marks)])]
    taken = [max(seconds - (once[place] if place < len(once) else 0.0), 0.0) for place, seconds in enumerate(taken)]
    of_k: dict[int, list[float]] = {}
    for k, seconds in zip(ks, taken, strict=True):
        of_k.setdefault(k, []).append(seconds)
    line = _line(ks, taken)
    means = {k: fmean(values) for k, values in of_k.items() if len(values) >= FEWEST_OF_K}
    return [
        Cost(at, seconds, max(means.get(k, line[0] + line[1] * k), 1e-9))
        for (at, _), seconds, k in zip(marks, taken, ks, strict=True)
    ]


def _line(xs: Sequence[int], ys: Sequence[float]) -> tuple[float, float]:
    """Height and slope of the least squares."""
    if not xs:
        return 0.0, 0.0
    x, y = fmean(xs), fmean(ys)
    spread = sum((one - x) ** 2 for one in xs)
    slope = sum((one - x) * (other - y) for one, other in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return y - slope * x, slope


def _half_width(plain: Sequence[Cost], drafted: Sequence[Cost], block_seconds: float) -> float:
    """Of the 95 % interval of the ratio's logarithm."""
    blocks: dict[int, list[float]] = {}
    for side, costs in enumerate((plain, drafted)):
        for cost in costs:
            sums = blocks.setdefault(min(int(cost.at / block_seconds), BLOCKS - 1), [0.0] * 4)
            sums[2 * side] += cost.seconds
            sums[2 * side + 1] += cost.expected
    whole = [sum(column) for column in zip(*blocks.values(), strict=True)]
    without = [_level([total - one for total, one in zip(whole, sums, strict=True)]) for sums in blocks.values()]
    middle, n = fmean(without), len(without)
    return t_quantile(n - 1) * sqrt((n - 1) / n * sum((value - middle) ** 2 for value in without))


def _level(sums: Iterable[float]) -> float:
    """The logarithm of (plain seconds ÷ expected) ÷ (drafted seconds ÷ expected)."""
    plain, plain_expected, drafted, drafted_expected = sums
    return log(max(plain, 1e-9) / plain_expected) - log(max(drafted, 1e-9) / drafted_expected)
