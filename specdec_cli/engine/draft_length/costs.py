"""Recent costs of rounds on this machine (pure). Law: medians of recent rounds; an assumption weighs one round.

Letters: n rows of a target pass (n = K + 1), K draft tokens. Seconds are kept as logarithms. Two things change: the
machine's speed (heat, battery, other programs, a longer context), common to all passes, and the shape (what n rows
cost beside one). Speed follows every round, so a cost that was last measured long ago is read at today's speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, log
from statistics import median_low
from typing import Any

from specdec_cli.speedup import TYPICAL_ROW_COST, interpolate

# Rounds of one kind whose median counts (the lower one: outliers are slow): up to 16 outliers do nothing.
RECENT_ROUNDS = 33
# An assumption, and what its neighbours suggest, weigh as much as one measured round.
PRIOR_ROUNDS = 1.0
# An estimate from n samples loses half its weight after 16 n rounds without a new one. So a promising K is retried soon
# if it was seen once, after about 500 rounds if it is well known.
HALF_LIFE_ROUNDS = 16
# One round alone moves an estimate by 35 % at most: a spike is not a trend.
SPIKE = 0.3
# Speed follows the median surprise of 9 rounds, in steps of 8 % or more. Less is noise, and following noise would let
# measured costs drift away from unmeasured ones.
TREND_ROUNDS, SPEED_STEP = 9, 0.08
# Rounds of one kind before the speed is estimated from them: a median of fewer may itself be off.
SURE_ROUNDS = 8
# Plain steps needed before anything is compared with them.
PLAIN_ROUNDS = 2
# Fewer tokens in one read say more about overhead than about the cost of a token.
PREFILL_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Costs:
    """Assumptions before anything is measured, all in plain steps: n rows of the target, K draft steps, a prompt token.

    Tables are linear between and beyond their entries; a draft table needs one entry, a verify table none.
    """

    verify: Mapping[int, float] = field(default_factory=dict)
    draft: Mapping[int, float] = field(default_factory=lambda: {1: 0.1})
    # Prompt tokens are read many at a time, eight in about a step's time (published: 350 tok/s read, 50 tok/s decoded).
    prefill_token: float = 0.1 / 8

    @classmethod
    def of_ratio(cls, ratio: float, row: float = TYPICAL_ROW_COST) -> Costs:
        """A draft step costs what its weights weigh beside the target's (`ratio`); each further row costs `row`."""
        return cls({2: 1 + row}, {1: ratio}, ratio / 8)

    def rows(self, n: int) -> float:
        """Plain steps of an n-row target pass."""
        return interpolate({**self.verify, 1: 1.0}, n, TYPICAL_ROW_COST)

    def steps(self, k: int) -> float:
        """Plain steps of k draft steps."""
        return interpolate({**self.draft, 0: 0.0}, k, 0.0)


class Curve:
    """Recent log seconds by n. An n not seen is read off the assumed shape, bent to go through them."""

    def __init__(self, assumed: Callable[[int], float]) -> None:
        self._assumed = assumed
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._shapes: dict[int, float] = {}

    def add(self, n: int, value: float, now: int) -> None:
        """One more log seconds, at drafted round number `now`: only drafted rounds age what is known of others."""
        samples = self._samples.setdefault(n, deque(maxlen=RECENT_ROUNDS))
        samples.append(value)
        self._medians[n], self._seen[n] = median_low(samples), now

    def weight(self, n: int, now: int) -> float:
        """Rounds' worth of knowledge of n."""
        if n not in self._samples:
            return 0.0
        seen = len(self._samples[n])
        return float(seen * 0.5 ** ((now - self._seen[n]) / (HALF_LIFE_ROUNDS * seen)))

    def count(self, n: int) -> int:
        return len(self._samples.get(n, ()))

    def age(self, n: int, now: int) -> int:
        """Drafted rounds since n was last seen."""
        return now - self._seen[n]

    def median(self, n: int) -> float:
        return self._medians[n]

    def table(self, plain: float) -> dict[int, float]:
        """n -> plain steps, of what was seen more than once."""
        return {n: round(exp(self._medians[n] - plain), 4) for n in sorted(self._medians) if self.count(n) > 1}

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

    def _off(self, n: int, plain: float) -> float:
        """Measured log cost of n, less the assumed shape."""
        return self._medians[n] - plain - self._shape(n)

    def _around(self, n: int, plain: float) -> float:
        """Measured log costs of the neighbours of n, less the assumed shape: linear between them, level beyond them.

        Beyond the largest measured n, take the lower extrapolation: too low is corrected by one trial, too high is
        never tried.
        """
        seen = [m for m in self._medians if m != n and self.count(m) > 1]
        below = max((m for m in seen if m < n), default=None)
        above = min((m for m in seen if m > n), default=None)
        if below is None:
            return self._off(above, plain) if above is not None else 0.0
        level = self._off(below, plain)
        if above is not None:
            return level + (self._off(above, plain) - level) * (n - below) / (above - below)
        first = min(seen)
        if first == below:
            return level
        near, far = exp(self._medians[first] - plain), exp(self._medians[below] - plain)
        line = max(far + (far - near) * (n - below) / (below - first), far)
        return min(level, log(line) - self._shape(n))


class CostRecord:
    """Costs of plain and drafted rounds as observed, over an assumption."""

    def __init__(self, assumed: Costs) -> None:
        self.assumed = assumed
        self._verify = Curve(assumed.rows)
        self._draft = Curve(assumed.steps)
        self._prefill = Curve(lambda _: assumed.prefill_token)
        self._speed = 0.0
        self._surprises: deque[float] = deque(maxlen=TREND_ROUNDS)
        self._now = 0

    def plain(self, seconds: float) -> None:
        """A plain round that follows another plain round."""
        self._pass(1, seconds)

    def drafted(self, k: int, draft_seconds: float | None, verify_seconds: float) -> None:
        """A round of k; `draft_seconds` None where they include reading what plain rounds had emitted."""
        self._now += 1
        self._pass(k + 1, verify_seconds)
        if draft_seconds:
            self._draft.add(k, log(draft_seconds) - self._speed, self._now)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """The draft read `tokens` tokens of context at once."""
        if tokens >= PREFILL_TOKENS and seconds > 0:
            self._prefill.add(1, log(seconds / tokens) - self._speed, self._now)

    def _pass(self, rows: int, seconds: float) -> None:
        if seconds <= 0:
            return
        if self._verify.count(rows) >= SURE_ROUNDS:
            self._surprises.append(log(seconds) - self._speed - self._verify.median(rows))
            trend = median_low(self._surprises)
            if len(self._surprises) == TREND_ROUNDS and abs(trend) > SPEED_STEP:
                self._speed += trend
                self._surprises.clear()
        self._verify.add(rows, log(seconds) - self._speed, self._now)

    @property
    def ready(self) -> bool:
        """Plain steps have been seen, in this process."""
        return self._verify.count(1) >= PLAIN_ROUNDS

    @property
    def prefill_known(self) -> bool:
        return self._prefill.count(1) > 0

    def plain_seen(self) -> tuple[int, int]:
        """Plain rounds within memory, and drafted rounds since the last."""
        return self._verify.count(1), self._verify.age(1, self._now)

    def plain_seconds(self) -> float:
        """A plain step, now. Needs `ready`, as all estimates do."""
        return exp(self._verify.median(1) + self._speed)

    def round_seconds(self, k: int) -> float:
        """K draft steps and a pass of K + 1 rows, now."""
        return self.draft_seconds(k) + self.verify_seconds(k) if k else self.plain_seconds()

    def verify_seconds(self, k: int) -> float:
        """A pass of K + 1 rows, now."""
        return self._seconds(self._verify, k + 1) if k else self.plain_seconds()

    def draft_seconds(self, k: int) -> float:
        """K > 0 draft steps, now."""
        return self._seconds(self._draft, k)

    def _seconds(self, curve: Curve, n: int) -> float:
        return exp(curve.estimate(n, self._verify.median(1), self._now) + self._speed)

    def prefill_token_seconds(self) -> float:
        """The draft's reading of one token of a long stretch of context, now."""
        if self._prefill.count(1):
            return exp(self._prefill.median(1) + self._speed)
        return self._seconds(self._prefill, 1)

    def to_costs(self) -> Costs:
        """The measurements as the assumption of a later process: ratios only, as plain steps are measured anew."""
        plain = self._verify.median(1)
        verify = {**self.assumed.verify, **self._verify.table(plain)}
        draft = {**self.assumed.draft, **self._draft.table(plain)}
        return Costs(verify, draft, round(self.prefill_token_seconds() / self.plain_seconds(), 6))


def costs_from_dict(values: Mapping[str, Any]) -> Costs:
    """The Costs whose `asdict` went through JSON, where keys are text. Raises KeyError, TypeError or ValueError."""
    verify, draft = ({int(n): float(v) for n, v in values[name].items()} for name in ("verify", "draft"))
    costs = Costs(verify, draft, float(values["prefill_token"]))
    if not draft or min(*verify.values(), *draft.values(), costs.prefill_token) <= 0 or min(*verify, *draft) < 1:
        raise ValueError(f"costs must be positive: {values}")
    return costs
