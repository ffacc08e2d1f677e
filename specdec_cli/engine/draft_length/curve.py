"""Recent costs of one kind of pass by its size n (pure). Law: medians of recent rounds; an assumption weighs one round.

Costs are kept as logarithms of seconds. An n that was not seen is read off the assumed shape, bent to go through those
that were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import exp, log
from statistics import median_low

from specdec_cli.speedup import interpolate

# Rounds of one kind whose median counts (the lower one: outliers are slow): up to 16 outliers do nothing.
RECENT_ROUNDS = 33
# An assumption, and what its neighbours suggest, weigh as much as one measured round.
PRIOR_ROUNDS = 1.0
# An estimate from n samples loses half its weight after 6 n² rounds without a new one: what was seen once may have been
# a bad moment and is soon tried again, what was seen ten times is not tried for hundreds of rounds.
HALF_LIFE_ROUNDS = 6
# One round alone moves an estimate by 35 % at most: a spike is not a trend.
SPIKE = 0.3

# Sizes within this factor of each other are alike: what one round of each shows, they confirm for each other.
ALIKE = 1.15

# Rounds in a row, all this far off (log) to one side, after which older ones are forgotten.
TURN_ROUNDS, TURN = 3, 0.08


class Curve:
    """Log seconds by n. `anchor` is an n whose shape is 1 by definition, as that of a plain step is among row counts.

    A `curious` curve takes the lower of two extrapolations beyond the largest n that was measured: too low is corrected
    by one trial, too high is never tried. One whose assumed shape is known of this kind of machine keeps to the shape.
    """

    def __init__(self, assumed: Callable[[int], float], anchor: int | None = None, curious: bool = True) -> None:
        self._assumed, self._anchor, self._curious = assumed, anchor, curious
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._shapes: dict[int, float] = {}
        self._offs: tuple[float, dict[int, float]] | None = None

    def add(self, n: int, value: float, now: int) -> None:
        """One more log seconds, at drafted round number `now`: only drafted rounds age what is known of others."""
        samples = self._samples.setdefault(n, deque(maxlen=RECENT_ROUNDS))
        samples.append(value)
        self._medians[n], self._seen[n] = median_low(samples), now
        self._offs = None

    def forget_old(self, n: int) -> None:
        """Keep only the last samples of n if all of them are off the median to the same side: its cost has changed."""
        last = list(self._samples[n])[-TURN_ROUNDS:]
        off = [value - self._medians[n] for value in last]
        if len(last) == TURN_ROUNDS and (min(off) > TURN or max(off) < -TURN):
            self._samples[n] = deque(last, maxlen=RECENT_ROUNDS)
            self._medians[n] = median_low(last)
            self._offs = None

    def weight(self, n: int, now: int) -> float:
        """Rounds' worth of knowledge of n."""
        seen = self.count(n)
        return float(seen * 0.5 ** ((now - self._seen[n]) / (HALF_LIFE_ROUNDS * seen**2))) if seen else 0.0

    def count(self, n: int) -> int:
        return len(self._samples.get(n, ()))

    def largest(self, least: int) -> int:
        """The largest n that was seen, and `least` where none was larger."""
        return max(self._medians, default=least)

    def age(self, n: int, now: int) -> int:
        """Drafted rounds since n was last seen; `now` where it never was."""
        return now - self._seen.get(n, 0)

    def median(self, n: int) -> float:
        return self._medians[n]

    def table(self, plain: float, more: Iterable[int], now: int) -> dict[int, float]:
        """n -> plain steps, of what was seen more than once and of `more`, bent to go through what was seen."""
        seen = {n for n in self._medians if self.count(n) > 1}
        return {
            n: round(exp((self._medians[n] if n in seen else self.estimate(n, plain, now)) - plain), 4)
            for n in sorted({*seen, *more})
        }

    def implied(self) -> list[float]:
        """What each n that was seen, but the anchor, says of a plain step if the assumed shape is right."""
        return [median - self._shape(n) for n, median in self._medians.items() if n != self._anchor]

    def confirmed(self) -> list[float]:
        """Medians of every n, but the anchor, that was seen more than once."""
        return [median for n, median in self._medians.items() if n != self._anchor and self.count(n) > 1]

    def estimate(self, n: int, plain: float, now: int) -> float:
        """Log seconds of n, where a plain step takes `plain` log seconds."""
        expected, weight = self._shape(n) + plain + self._around(n, plain), self.weight(n, now)
        if not weight:
            return expected
        # One round may be off by anything (a kernel compiled on first use, another program): a few confirm each other.
        most = SPIKE * self.count(n)
        off = max(-most, min(most, self._medians[n] - expected))
        return expected + off * weight / (weight + PRIOR_ROUNDS)

    def _shape(self, n: int) -> float:
        """Log plain steps assumed for n."""
        if n not in self._shapes:
            self._shapes[n] = log(self._assumed(n))
        return self._shapes[n]

    def _around(self, n: int, plain: float) -> float:
        """Measured log costs of the neighbours of n, less the assumed shape: linear between them, level beyond them."""
        off = {m: value for m, value in self._confirmed(plain).items() if m != n}
        if self._anchor:
            off.setdefault(self._anchor, 0.0)
        if not off:
            return 0.0
        first, last = min(off), max(off)
        if n < first:
            return off[first]
        if n < last:
            return interpolate(off, n)
        if first == last or not self._curious:
            return off[last]
        near, far = (exp(off[m] + self._shape(m)) for m in (first, last))
        line = max(far + (far - near) * (n - last) / (last - first), far)
        return min(off[last], log(line) - self._shape(n))

    def _confirmed(self, plain: float) -> dict[int, float]:
        """Measured log costs less the assumed shape, of every n but those of one lone round."""
        if self._offs is None or self._offs[0] != plain:  # asked for every n of every choice, and seldom another answer
            every = {m: median - plain - self._shape(m) for m, median in self._medians.items()}
            off = {m: value for m, value in every.items() if len(self._samples[m]) > 1}
            for m in every.keys() - off.keys():
                # It needs another n like it that agrees: lookups are of any length, and none comes twice.
                alike = [value for o, value in every.items() if o != m and max(m, o) <= ALIKE * min(m, o)]
                if alike:
                    off[m] = min(every[m], median_low(alike), key=abs)
            self._offs = plain, off
        return self._offs[1]
