"""Intervals over prompts (pure). Law: the prompt is the unit, and ratios are averaged as logarithms.

A percentile bootstrap of eight prompts covers 88 %; the t-interval of eight normal values covers 95 % exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean

from specdec_cli.student import t_quantile

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

    def shifted(self, by: float) -> Interval:
        return Interval(self.mean + by, self.low + by, self.high + by, self.prompts)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Moments:
    """A mean, the variance of that mean, its degrees of freedom, and the number of prompts averaged."""

    mean: float
    variance: float
    freedom: float
    prompts: int

    @property
    def interval(self) -> Interval:
        if self.freedom < 1:
            return Interval(self.mean, -inf, inf, self.prompts)
        half = t_quantile(int(self.freedom)) * sqrt(self.variance)
        return Interval(self.mean, self.mean - half, self.mean + half, self.prompts)


def t_interval(values: Sequence[float]) -> Interval:
    """Mean ± t s / √n; the interval of a single value is unbounded."""
    return _moments([values]).interval


def by_kind(values: Groups) -> Interval:
    """The mean over kinds, equally weighted, where every kind has at least two prompts; else over prompts.

    The kinds are chosen, not sampled, so only the spread within kinds is an error. It is assumed equal in all kinds
    (pooled), with prompts - kinds degrees of freedom.
    """
    return _by_kind(values).interval


def two_phase(known: Groups, off: Groups) -> Interval:
    """Mean of a quantity measured on few prompts, where a correlated one is `known` on more (double sampling).

    Mean of `known` + mean of `off`, the measured differences to it (Cochran 1977, chapter 12). Both variances add up,
    with the degrees of freedom of Welch and Satterthwaite.
    """
    one, other = _by_kind(known), _by_kind(off)
    variance = one.variance + other.variance
    parts = sum(part.variance**2 / max(part.freedom, 1) for part in (one, other))
    freedom = min(variance**2 / parts if parts else inf, one.freedom + other.freedom)
    return Moments(one.mean + other.mean, variance, freedom, other.prompts).interval


def _by_kind(values: Groups) -> Moments:
    groups = [group for group in values.values() if group]
    if not groups or min(map(len, groups)) < 2:
        return _moments([[value for group in groups for value in group]])
    return _moments(groups)


def _moments(groups: Sequence[Sequence[float]]) -> Moments:
    """Groups weigh the same; the variance within groups is pooled."""
    means, n = [fmean(group) for group in groups], sum(map(len, groups))
    freedom = n - len(groups)
    within = sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group)
    weight = sum(1 / len(group) for group in groups) / len(groups) ** 2
    return Moments(fmean(means), within / max(freedom, 1) * weight, freedom, n)


def grouped(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """(kind, value) pairs as kind -> values."""
    groups: dict[str, list[float]] = {}
    for kind, value in values:
        groups.setdefault(kind, []).append(value)
    return groups


def log_ratio(one: float, other: float) -> float:
    return log(one / other)
