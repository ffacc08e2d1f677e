"""How rounds scatter around their neighbours (pure). Law: luck is not assumed but read off rounds whose ratio is 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from statistics import fmean, stdev
from typing import NamedTuple

# Drafted rounds on each side of a cluster that it is compared with: few where the machine changes by the second, many
# where rounds scatter at random; those whose placebos scatter least.
BESIDE_ROUNDS = (3, 8)
# No spread is believed to be smaller.
LEAST_SPREAD = 0.01
# Placebos that show a spread; fewer show nothing, and anything may be off by its own size.
FEWEST_PLACEBOS = 3


class Placebo(NamedTuple):
    """Of rounds over the `beside` rounds on each side: the mean, and the standard deviation as a share of it."""

    mean: float
    spread: float
    beside: int


class Scatter:
    """The seconds of rounds that should all have cost the same, in their order."""

    def __init__(self, rounds: Sequence[float]) -> None:
        self._sums = list(accumulate(rounds, initial=0.0))
        self._placebos: dict[tuple[int, bool], Placebo] = {}

    @property
    def rounds(self) -> int:
        return len(self._sums) - 1

    @cached_property
    def noise(self) -> float:
        """Standard deviation of one round beside those around it, as a share of them."""
        return self.placebo(1).spread

    def level(self, begin: int, end: int, beside: int, ended: bool = False) -> float:
        """Mean seconds of the rounds around those from `begin` to `end`; only of those before them if `ended`."""
        first, last = max(begin - beside, 0), end if ended else min(end + beside, self.rounds)
        around = self._sums[begin] - self._sums[first] + self._sums[last] - self._sums[end]
        return around / (begin - first + last - end)

    def placebo(self, alike: int, ended: bool = False) -> Placebo:
        """Of `alike` rounds in a row over those around them, or before them if `ended`; by the better neighbourhood."""
        if (alike, ended) not in self._placebos:
            found = [self._placebo(alike, beside, ended) for beside in BESIDE_ROUNDS]
            self._placebos[alike, ended] = min(found, key=lambda placebo: placebo.spread)
        return self._placebos[alike, ended]

    def _placebo(self, alike: int, beside: int, ended: bool) -> Placebo:
        sums, ratios = self._sums, []
        for at in range(max(min(beside, self.rounds // 3), 1), self.rounds - alike + 1):
            mean = (sums[at + alike] - sums[at]) / alike
            ratios.append(mean / self.level(at, at + alike, beside, ended))
        if len(ratios) < FEWEST_PLACEBOS:
            return Placebo(1.0, 1.0, beside)
        mean = fmean(ratios)
        return Placebo(mean, max(stdev(ratios) / mean, LEAST_SPREAD), beside)
