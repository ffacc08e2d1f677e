"""The ratio of a race (pure). Law: the same tokens on both sides, and no ratio without what chance could make of it.

The seconds are measured, so only their disturbances are in doubt: what another race of the same text on this machine
would give. The lanes took turns, so they are paired: each lane's time is cut into eighths, and what disturbs an eighth
of one disturbs that of the other. A round's seconds are compared with the mean of the lane's rounds that drafted as
many tokens, so that words which are harder to guess are no disturbance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

from specdec_cli.gain import FEWEST_ROUNDS
from specdec_cli.meter import LEAST_SECONDS, kind_means, t_interval
from specdec_cli.race.events import Measured

BLOCKS = 8

Marks = Sequence[tuple[float, int]]
"""(seconds, tokens) of one lane after each of its rounds, both growing."""


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
    low = high = None
    plain, drafted = rounds_until(plain, slow), rounds_until(drafted, fast)
    if min(len(plain), len(drafted)) >= FEWEST_ROUNDS:
        one = block_disturbances(plain, [0] * len(plain), ())
        other = block_disturbances(drafted, ks or [0] * len(drafted), once)
        _, half = t_interval([[above - below for above, below in zip(one, other, strict=True)]])
        low, high = exp(log(slow / fast) - half), exp(log(slow / fast) + half)
    return Measured(tokens, slow, fast, slow / fast, low, high)


def seconds_at(marks: Marks, tokens: float) -> float:
    """When a lane had written so many tokens; inside a round in proportion. The last mark's where it never had."""
    place = bisect_left(marks, tokens, key=lambda mark: mark[1])
    if place == len(marks):
        return marks[-1][0] if marks else 0.0
    (before, fewer), (after, more) = marks[place - 1] if place else (0.0, 0), marks[place]
    return before + (after - before) * (tokens - fewer) / (more - fewer)


def rounds_until(marks: Marks, end_seconds: float) -> Marks:
    """Those of a lane that began before."""
    return marks[: bisect_left(marks, end_seconds, key=lambda mark: mark[0]) + 1]


def block_disturbances(marks: Marks, ks: Sequence[int], once: Sequence[float]) -> list[float]:
    """[BLOCKS] logarithms of what each eighth of a lane's time took over what its rounds usually take."""
    taken = [after - before for before, after in pairwise([0.0, *(seconds for seconds, _ in marks)])]
    paid_once = [*once[: len(taken)], *[0.0] * (len(taken) - len(once))]
    taken = [max(seconds - paid, LEAST_SECONDS) for seconds, paid in zip(taken, paid_once, strict=True)]
    sums = [[0.0, 0.0] for _ in range(BLOCKS)]
    reached, total = 0.0, sum(taken)
    for seconds, usual in zip(taken, kind_means(ks[: len(taken)], taken), strict=True):
        block = sums[min(int(BLOCKS * (reached + seconds / 2) / total), BLOCKS - 1)]
        block[0], block[1], reached = block[0] + seconds, block[1] + usual, reached + seconds
    return [log(seconds / usual) if usual else 0.0 for seconds, usual in sums]
