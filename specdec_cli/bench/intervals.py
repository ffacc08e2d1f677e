"""Intervals over prompts (pure). Law: the prompt is the unit, and ratios are averaged as logarithms.

A percentile bootstrap of eight prompts covers 88 %; the t-interval of eight normal values covers 95 % exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean

from specdec_cli.student import CONFIDENCE, t_quantile

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


def t_interval(values: Sequence[float]) -> Interval:
    """Mean ± t s / √n; the interval of a single value is unbounded."""
    return _pooled([values], CONFIDENCE)


def by_kind(values: Groups, confidence: float = CONFIDENCE) -> Interval:
    """The mean over kinds, equally weighted, where every kind has at least two prompts; else over prompts.

    The kinds are chosen, not sampled, so only the spread within kinds is an error. It is assumed equal in all kinds
    (pooled), with prompts - kinds degrees of freedom.
    """
    groups = [group for group in values.values() if group]
    if not groups or min(map(len, groups)) < 2:
        groups = [[value for group in groups for value in group]]
    return _pooled(groups, confidence)


def _pooled(groups: Sequence[Sequence[float]], confidence: float) -> Interval:
    """Groups weigh the same; the variance within groups is pooled."""
    means, n = [fmean(group) for group in groups], sum(map(len, groups))
    mean, freedom = fmean(means), n - len(groups)
    if freedom < 1:
        return Interval(mean, -inf, inf, n)
    within = sum((value - one) ** 2 for group, one in zip(groups, means, strict=True) for value in group)
    weight = sum(1 / len(group) for group in groups) / len(groups) ** 2
    half = t_quantile(freedom, confidence) * sqrt(within / freedom * weight)
    return Interval(mean, mean - half, mean + half, n)


def grouped(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """(kind, value) pairs as kind -> values."""
    groups: dict[str, list[float]] = {}
    for kind, value in values:
        groups.setdefault(kind, []).append(value)
    return groups


def log_ratio(one: float, other: float) -> float:
    return log(one / other)
