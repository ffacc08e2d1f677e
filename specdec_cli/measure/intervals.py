"""Means with their 95 % intervals, over prompts (pure).

A percentile bootstrap of eight prompts covers 88 %; the t-interval of eight normal values covers 95 % exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, isfinite

from specdec_cli.core.speedup import CONFIDENCE, t_interval
from specdec_cli.measure.prompts import PromptId

# Fewer prompts give no useful interval.
FEWEST_PROMPTS = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, of `prompts` prompts."""

    mean: float
    low: float
    high: float
    prompts: int

    def exp(self) -> Interval:
        """From logarithms to ratios; the mean becomes the geometric mean."""
        return Interval(exp(self.mean), exp(self.low), exp(self.high) if self.high < 700 else inf, self.prompts)

    @property
    def bounds(self) -> tuple[float, float] | tuple[None, None]:
        """Its ends, for files; none of too few prompts, or where one is no number."""
        known = self.prompts >= FEWEST_PROMPTS and isfinite(self.low) and isfinite(self.high)
        return (self.low, self.high) if known else (None, None)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def interval_over(values: Mapping[PromptId, float], confidence: float = CONFIDENCE) -> Interval:
    """The mean over kinds, equally weighted, where every kind has at least two prompts; else over prompts.

    The kinds are chosen, not sampled, so only the spread within kinds is an error. It is assumed equal in all kinds
    (pooled), with prompts - kinds degrees of freedom.
    """
    kinds: dict[str, list[float]] = {}
    for at, value in values.items():
        kinds.setdefault(at.kind, []).append(value)
    groups = list(kinds.values())
    if min(map(len, groups), default=0) < 2:
        groups = [list(values.values())]
    mean, half = t_interval(groups, confidence)
    return Interval(mean, mean - half, mean + half, len(values))
