"""The ratio of a race (pure). Law: the same tokens on both sides, and no ratio without the interval of its segments.

The text is cut into segments of equally many tokens. Each has its own seconds in both lanes, so they are pairs: what is
hard to guess or disturbed shows as a segment that differs from the others. The interval is the jackknife's over
segments (Quenouille 1956, Tukey 1958), with Student's t. What is paid once a reply is in the ratio, and in no segment:
the pass of the first token, and the draft's reading of the prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log, sqrt
from statistics import fmean

from specdec_cli.bench.intervals import t_quantile
from specdec_cli.race.events import Measured

# A segment holds at least this many tokens: a few rounds.
TOKENS = 8
# Fewer segments give no useful interval; more than `MOST` would be shorter than the disturbances of a machine.
FEWEST, MOST = 4, 16

Marks = Sequence[tuple[float, int]]
"""(seconds, tokens) of one lane after each of its rounds, both growing."""


def measured(plain: Marks, drafted: Marks, tokens: int, once: float = 0.0) -> Measured | None:
    """The ratio over the first `tokens` tokens of both lanes; None without any.

    `once` are those seconds of the drafted lane that are paid once, besides its first round.
    """
    if tokens < 1:
        return None
    slow, fast = seconds_at(plain, tokens), seconds_at(drafted, tokens)
    if slow <= 0 or fast <= 0:
        return None
    segments = min(MOST, (tokens - 1) // TOKENS)
    low = high = None
    if segments >= FEWEST:
        low, high = _interval(plain, drafted, tokens, segments, once)
    return Measured(tokens, slow, fast, slow / fast, low, high, segments)


def seconds_at(marks: Marks, tokens: float) -> float:
    """When a lane had written so many tokens; inside a round in proportion. The last mark's where it never had."""
    place = bisect_left(marks, tokens, key=lambda mark: mark[1])
    if place == len(marks):
        return marks[-1][0] if marks else 0.0
    (before, fewer), (after, more) = marks[place - 1] if place else (0.0, 0), marks[place]
    return before + (after - before) * (tokens - fewer) / (more - fewer)


def tokens_at(marks: Marks, seconds: float) -> int:
    """Tokens that a lane had written by then: those of its complete rounds."""
    place = bisect_left(marks, seconds, key=lambda mark: mark[0])
    if place < len(marks) and marks[place][0] == seconds:
        place += 1
    return marks[place - 1][1] if place else 0


def _interval(plain: Marks, drafted: Marks, tokens: int, segments: int, once: float) -> tuple[float, float]:
    """The 95 % interval of the ratio."""
    edges = [1 + (tokens - 1) * place / segments for place in range(segments + 1)]
    slow, fast = _lengths(plain, edges), _lengths(drafted, edges)
    first_slow, first_fast = seconds_at(plain, 1), seconds_at(drafted, 1)
    # The draft reads the prompt before the second round, so in the first segment.
    fast[0] -= once
    scale = segments / (segments - 1)
    whole = log((first_slow + sum(slow)) / (first_fast + once + sum(fast)))
    without = [
        log((first_slow + scale * (sum(slow) - one)) / (first_fast + once + scale * (sum(fast) - other)))
        for one, other in zip(slow, fast, strict=True)
    ]
    middle = fmean(without)
    error = sqrt((segments - 1) / segments * sum((value - middle) ** 2 for value in without))
    half = t_quantile(segments - 1) * error
    return exp(whole - half), exp(whole + half)


def _lengths(marks: Marks, edges: Sequence[float]) -> list[float]:
    times = [seconds_at(marks, edge) for edge in edges]
    return [after - before for before, after in pairwise(times)]
