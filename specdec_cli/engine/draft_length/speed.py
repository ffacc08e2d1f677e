"""How slow the machine is at present, common to all passes (pure). Law: only what many rounds agree on is followed.

Less is noise, and following noise would let measured costs drift away from unmeasured ones. Between two replies the
machine may have become another one (a load, heat, power), so what a reply's first rounds agree on is followed at once.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low

# It follows the median surprise of so many rounds, if among so many last ones so many are on its side: the rounds of a
# load that has just ended are no longer true.
TREND = (9, 3, 3)
# Likewise the first rounds of a reply. One may be a spike, and a cold start is three rounds long.
SETTLING = (5, 5, 4)
# Steps (log) are of 8 % or more.
STEP = 0.08
# Rounds of one kind before it tells a surprise: a median of fewer may itself be off. Between replies the change may be
# larger than that.
SURE_ROUNDS, SETTLING_SURE_ROUNDS = 8, 2


class Speed:
    """`log` is added to what rounds cost in seconds (log); while `settling` it may still be that of another time."""

    def __init__(self) -> None:
        self.log = 0.0
        self._surprises: deque[float] = deque(maxlen=TREND[0])
        self.settling = False

    def begin(self) -> None:
        """A reply begins, maybe long after the one before."""
        self._surprises.clear()
        self.settling = True

    @property
    def sure_rounds(self) -> int:
        """Rounds of one kind before a surprise of it is worth telling."""
        return SETTLING_SURE_ROUNDS if self.settling else SURE_ROUNDS

    def follow(self, surprise: float) -> float:
        """A round took so much (log) more than is usual at this speed. Returns the step that the speed takes."""
        self._surprises.append(surprise)
        rounds, last, agreeing = SETTLING if self.settling else TREND
        if len(self._surprises) < rounds:
            return 0.0
        trend = median_low(self._surprises)
        along = sum(one * trend > 0 for one in list(self._surprises)[-last:])
        agreed = abs(trend) > STEP and along >= agreeing
        if agreed or self.settling:  # what little-known kinds said is not evidence for later
            self._surprises.clear()
        self.settling = False
        step = trend if agreed else 0.0
        self.log += step
        return step
