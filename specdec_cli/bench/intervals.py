"""Intervals over prompts (pure). Law: the prompt is the unit, and ratios are averaged as logarithms.

A percentile bootstrap of eight prompts covers 88 %; the t-interval of eight normal values covers 95 % exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from specdec_cli.meter import CONFIDENCE, t_interval

# Fewer prompts give no useful interval.
FEWEST_PROMPTS = 3
Groups = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, of `prompts` prompts."""

    mean: float
    low: float
    high: float
    prompts: int

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def exp(self) -> Interval:
        """From logarithms to ratios; the mean becomes the geometric mean."""
        return Interval(exp(self.mean), exp(self.low), exp(min(self.high, 700.0)), self.prompts)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def by_kind(values: Groups, confidence: float = CONFIDENCE) -> Interval:
    """The mean over kinds, equally weighted, where every kind has at least two prompts; else over prompts.

    The kinds are chosen, not sampled, so only the spread within kinds is an error. It is assumed equal in all kinds
    (pooled), with prompts - kinds degrees of freedom.
    """
    groups = [group for group in values.values() if group]
    if not groups or min(map(len, groups)) < 2:
        groups = [[value for group in groups for value in group]]
    mean, half = t_interval(groups, confidence)
    return Interval(mean, mean - half, mean + half, sum(map(len, groups)))


def grouped(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """(kind, value) pairs as kind -> values."""
    groups: dict[str, list[float]] = {}
    for kind, value in values:
        groups.setdefault(kind, []).append(value)
    return groups
