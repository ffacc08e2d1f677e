"""What rounds cost: as assumed, and as measured here (pure).

A cost is the median of recent rounds; an assumption weighs as much as one of them.

Letters: n rows of a target pass (n = K + 1), K draft tokens. Assumptions are in plain steps, measurements in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import exp, log
from statistics import median_low
from typing import Any

from specdec_cli.core.gain import TYPICAL_ROW_COST, interpolate
from specdec_cli.engine.draft_length.constants import (
    MEASURED_DOUBT,
    PREFILL_TOKENS,
    RECENT_ROUNDS,
    SPIKE,
    STALE_ROUNDS,
    TURN,
    TURN_ROUNDS,
    UNKNOWN_DOUBT,
)


@dataclass(frozen=True, slots=True)
class Costs:
    """Assumptions before anything is measured, all in plain steps: n rows of the target, K draft steps, a prompt token.

    Tables are linear between and beyond their entries; a draft table needs one entry, a verify table none.
    """

    verify: Mapping[int, float] = field(default_factory=dict)
    draft: Mapping[int, float] = field(default_factory=lambda: {1: 0.1})
    # Prompt tokens are read many at a time, eight in about a step's time (published: 350 tok/s read, 50 tok/s decoded).
    prefill_token: float = 0.1 / 8
    # How far (log) these ratios may be off: until a plain step was measured, no smaller gain is believed.
    doubt: float = UNKNOWN_DOUBT

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


def costs_from_dict(values: Mapping[str, Any]) -> Costs:
    """The Costs whose `asdict` went through JSON, where keys are text. Raises KeyError, TypeError or ValueError."""
    verify, draft = ({int(n): float(v) for n, v in values[name].items()} for name in ("verify", "draft"))
    return Costs(verify, draft, float(values["prefill_token"]), float(values["doubt"]))


class SizeCosts:
    """Seconds of one kind of pass by its size n, over an `assumed` shape in plain steps.

    Of a size that was not measured, the shape is bent to go through those that were. `base` are the plain steps that
    every size has in common: 1 where what is measured at few rows says what more rows cost, and the shape does not.
    """

    def __init__(self, assumed: Callable[[int], float], base: float = 0.0) -> None:
        self._assumed, self._base = assumed, base
        self._seconds: dict[int, deque[float]] = {}
        self._shape: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._now = 0
        self.medians: dict[int, float] = {}

    def count(self, n: int) -> int:
        """Rounds that count, of size n."""
        if n > 1 and self._now - self._seen.get(n, 0) > STALE_ROUNDS:
            return 0
        return len(self._seconds.get(n, ()))

    def shape(self, n: int) -> float:
        """Assumed plain steps."""
        if n not in self._shape:
            self._shape[n] = self._assumed(n)
        return self._shape[n]

    def add(self, n: int, seconds: float) -> float:
        """One more measurement. Returns the factor by which n has turned slower, 1 as a rule."""
        recent = self._seconds.setdefault(n, deque(maxlen=RECENT_ROUNDS))
        recent.append(seconds)
        self._now += n > 1
        self._seen[n] = self._now
        older, last = list(recent)[:-TURN_ROUNDS], list(recent)[-TURN_ROUNDS:]
        before, factor = median_low(older) if len(older) >= TURN_ROUNDS else None, 1.0
        if before is not None and (min(last) > before * TURN or max(last) < before / TURN):
            factor = median_low(last) / before
            self._seconds[n] = recent = deque([*(one * factor for one in older), *last], maxlen=RECENT_ROUNDS)
        self.medians[n] = median_low(recent)
        return factor

    def scale(self, factor: float, but: int = 0) -> None:
        """Every size but one is slower by this factor than when it was measured."""
        for n in self._seconds.keys() - {but}:
            self._seconds[n] = deque((one * factor for one in self._seconds[n]), maxlen=RECENT_ROUNDS)
            self.medians[n] *= factor

    def forget(self, n: int | None = None) -> None:
        for one in [n] if n else list(self.medians):
            self._seconds.pop(one, None)
            self.medians.pop(one, None)

    def implied(self) -> list[float]:
        """Seconds of a plain step that each measured size of several rows suggests, if the shape is right."""
        return [median / self.shape(n) for n, median in self.medians.items() if n > 1]

    def steps(self, n: int, plain_seconds: float) -> float:
        """Plain steps of size n."""
        expected = self._base + (self.shape(n) - self._base) * self._bend(n, plain_seconds)
        if not (seen := self.count(n)):
            return expected
        found = self.medians[n] / plain_seconds
        if seen == 1:
            found = min(max(found, expected / SPIKE), expected * SPIKE)
        return (found * seen + expected) / (seen + 1)

    def _bend(self, n: int, plain_seconds: float) -> float:
        """Measured over assumed plain steps of the neighbours of n: linear between them, level beyond."""
        bends = {
            m: log(max(median / plain_seconds - self._base, 0.02) / max(self.shape(m) - self._base, 0.02))
            for m, median in self.medians.items()
            if m != n and self.count(m) > 1 and self.shape(m) > self._base
        }
        if not bends:
            return 1.0
        return exp(interpolate(bends, min(max(n, min(bends)), max(bends))))

    def table(self, plain_seconds: float, more: Mapping[int, float]) -> dict[int, float]:
        """n -> plain steps of what was measured more than once and of `more`: the assumption of a later process."""
        seen = {n: median / plain_seconds for n, median in self.medians.items() if len(self._seconds[n]) > 1}
        return {n: round(seen.get(n) or self.steps(n, plain_seconds), 4) for n in sorted({*seen, *more})}


class RoundCosts:
    """Costs of plain and drafted rounds as observed, over an assumption."""

    def __init__(self, assumed: Costs) -> None:
        self.assumed = assumed
        self._passes = SizeCosts(assumed.rows, base=0.0 if self.shape_known else 1.0)
        self._drafts = SizeCosts(assumed.steps)
        self._reads = SizeCosts(lambda _: assumed.prefill_token)
        self._starts: deque[float] = deque(maxlen=TURN_ROUNDS)
        self.implied = False

    def observe_plain(self, seconds: float) -> None:
        """A plain round that follows another plain round."""
        if seconds > 0:
            if self.implied:
                self._passes.forget(1)
                self.implied = False
            self._turn(self._passes.add(1, seconds), 1)

    def observe_start(self, seconds: float) -> None:
        """A plain round that nothing was queued for: a plain step takes no longer.

        Where it takes much less than those before, they were measured while the machine was busy, as all else was.
        """
        if seconds > 0:
            self._starts.append(seconds)
            if self._passes.count(1) and seconds * SPIKE < self._passes.medians[1]:
                for costs in (self._passes, self._drafts, self._reads):
                    costs.forget()
                self._passes.add(1, seconds)
                self.implied = True

    def observe_drafted(self, k: int, draft_seconds: float | None, verify_seconds: float) -> None:
        """A round of k; `draft_seconds` None where they include reading, or where nothing was computed."""
        if verify_seconds > 0:
            self._turn(self._passes.add(k + 1, verify_seconds), k + 1)
            if draft_seconds:
                self._drafts.add(k, draft_seconds)

    def _turn(self, factor: float, rows: int) -> None:
        """What slows one pass slows all of them; of a plain step that is only implied until it is measured again."""
        if factor != 1.0:
            for costs in (self._drafts, self._reads):
                costs.scale(factor)
            self._passes.scale(factor, but=rows)
            self._starts = deque((one * factor for one in self._starts), maxlen=TURN_ROUNDS)
            self.implied = rows > 1 and self._passes.count(1) > 0

    def observe_reading(self, tokens: int, seconds: float) -> None:
        """The draft read `tokens` tokens of context at once."""
        if tokens >= PREFILL_TOKENS and seconds > 0:
            self._reads.add(1, seconds / tokens)

    @property
    def ready(self) -> bool:
        """Plain steps have been seen, in this process."""
        return self._passes.count(1) > 1

    @property
    def disputed(self) -> bool:
        """Whether a plain step seems too dear beside passes of several rows, which cost no less than one.

        Measured a few times only, it is compared with what they imply, as far as the shape is known. Else a slow moment
        makes drafting look cheap for as long as it drafts.
        """
        plain, seen = self._passes.count(1), [n for n in self._passes.medians if n > 1 and self._passes.count(n) > 1]
        if not plain or not seen:
            return False
        bound = min(self._passes.medians[n] for n in seen) * TURN
        if plain < TURN_ROUNDS:
            bound = min(bound, median_low(self._passes.implied()) * exp(self.assumed.doubt))
        return bound < self._passes.medians[1]

    @property
    def shape_known(self) -> bool:
        """Whether the assumed costs are those of this kind of machine, or were measured by an earlier process."""
        return self.assumed.doubt < UNKNOWN_DOUBT

    @property
    def rows_measured(self) -> bool:
        """Whether a pass of several rows was measured more than once."""
        return any(n > 1 and self._passes.count(n) > 1 for n in self._passes.medians)

    @property
    def read_measured(self) -> bool:
        return self._reads.count(1) > 0

    @property
    def most_rows(self) -> int:
        return max(self._passes.medians, default=1)

    def plain_seconds(self) -> float:
        """A plain step, now: its median; else as its start and wider passes suggest; 1 before anything was measured."""
        if self._passes.count(1):
            return self._passes.medians[1]
        bounds = [median_low(found) for found in (self._passes.implied(), self._starts) if found]
        return min(bounds, default=1.0)

    def round_steps(self, k: int) -> float:
        """Plain steps of a round of k: k draft steps and a pass of k + 1 rows."""
        return self.pass_steps(k + 1) + (self._drafts.steps(k, self.plain_seconds()) if k else 0.0)

    def pass_steps(self, n: int) -> float:
        """Plain steps of a pass of n rows."""
        return self._passes.steps(n, self.plain_seconds()) if n > 1 else 1.0

    def draft_seconds(self, k: int) -> float:
        return self._drafts.steps(k, self.plain_seconds()) * self.plain_seconds()

    def read_seconds(self) -> float:
        """The draft's reading of one token of a long stretch of context."""
        return self._reads.steps(1, self.plain_seconds()) * self.plain_seconds()

    def to_dict(self) -> dict[str, Any]:
        """The measurements, to be assumed by a later process: ratios alone, as it measures its own plain steps."""
        if not self.ready:
            return asdict(self.assumed)
        plain = self.plain_seconds()
        verify = {**self._passes.table(plain, self.assumed.verify), 1: 1.0}
        draft = self._drafts.table(plain, self.assumed.draft)
        doubt = MEASURED_DOUBT if self.rows_measured else self.assumed.doubt
        return asdict(Costs(verify, draft, round(self._reads.steps(1, plain), 6), doubt))
