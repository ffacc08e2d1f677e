"""What rounds cost: as assumed, and as measured here (pure).

A cost is the median of the last few rounds of its size. Of a size that was not measured, the assumption is bent as its
nearest measured neighbour was. Where three rounds of a size in a row are off, the machine has turned: the seconds are
forgotten, and the ratios are the new assumption, as they are in the next process.

Letters: n rows of a target pass (n = K + 1), K draft tokens. Assumptions are in plain steps, measurements in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median_low
from typing import Any

from specdec_cli.core.gain import TYPICAL_ROW_COST, interpolate
from specdec_cli.core.request import MAX_K, MAX_ROWS
from specdec_cli.engine.planning.tuning import (
    MEASURED_DOUBT,
    PREFILL_TOKENS,
    RECENT_ROUNDS,
    SPIKE,
    TURN,
    TURN_ROUNDS,
    UNKNOWN_DOUBT,
)

# No pass of several rows costs less than so many plain steps beyond the first, or a ratio of costs would not be one.
LEAST_STEPS = 0.02


@dataclass(frozen=True, slots=True)
class Costs:
    """Assumptions before anything is measured, all in plain steps: n rows of the target, K draft steps, a prompt token.

    Tables are linear between and beyond their entries; a draft table needs one entry, a verify table none.
    """

    verify: Mapping[int, float] = field(default_factory=dict)
    draft: Mapping[int, float] = field(default_factory=lambda: {1: 0.1})
    # Prompt tokens are read many at a time, eight in about a step's time (published: 350 tok/s read, 50 tok/s decoded).
    prefill_token: float = 0.1 / 8
    # How far (log) these ratios may be off.
    doubt: float = UNKNOWN_DOUBT

    @classmethod
    def of_ratio(cls, ratio: float, row: float = TYPICAL_ROW_COST) -> Costs:
        """A draft step costs what its weights weigh beside the target's (`ratio`); each further row costs `row`."""
        return cls({2: 1 + row}, {1: ratio}, ratio / 8)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Costs:
        """What `asdict` made and JSON kept, whose keys are text. Raises KeyError, TypeError or ValueError."""
        verify, draft = ({int(n): float(v) for n, v in values[name].items()} for name in ("verify", "draft"))
        return cls(verify, draft, float(values["prefill_token"]), float(values["doubt"]))

    def rows(self, n: int) -> float:
        """Plain steps of an n-row target pass."""
        return interpolate({**self.verify, 1: 1.0}, n, TYPICAL_ROW_COST)

    def steps(self, k: int) -> float:
        """Plain steps of k draft steps."""
        return interpolate({**self.draft, 0: 0.0}, k, 0.0)


class SizeCosts:
    """Seconds of one kind of pass by its size, over `shape`[size], the assumed plain steps.

    `base` are the plain steps that every size has in common: 1 where what is measured at few rows says what more rows
    cost, and the shape does not.
    """

    def __init__(self, shape: Sequence[float], base: float = 0.0) -> None:
        self.shape, self._base = shape, base
        self._recent: dict[int, deque[float]] = {}
        self.medians: dict[int, float] = {}

    def count(self, n: int) -> int:
        """Rounds of size n that count."""
        return len(self._recent.get(n, ()))

    def put(self, n: int, seconds: Iterable[float]) -> None:
        """These are the rounds of size n."""
        self._recent[n] = deque(seconds, maxlen=RECENT_ROUNDS)
        self.medians[n] = median_low(self._recent[n])

    def add(self, n: int, seconds: float) -> list[float]:
        """One more round. Returns the last ones where they say that the machine has turned, else nothing."""
        before = self.medians.get(n)
        self.put(n, [*self._recent.get(n, ()), seconds])
        last = list(self._recent[n])[-TURN_ROUNDS:]
        if before is None or self.count(n) < 2 * TURN_ROUNDS:
            return []
        return last if min(last) > before * TURN or max(last) < before / TURN else []

    def steps(self, n: int, plain_seconds: float) -> float:
        """Plain steps of size n. The assumption weighs as much as one round.

        The first round of a size makes it seem no dearer: a device may have compiled its kernels in it.
        """
        expected = self._base + (self.shape[n] - self._base) * self._bend(n, plain_seconds)
        seen = self.count(n)
        if not seen:
            return expected
        measured = self.medians[n] / plain_seconds
        if seen == 1:
            measured = min(max(measured, expected / SPIKE), expected)
        return (measured * seen + expected) / (seen + 1)

    def _bend(self, n: int, plain_seconds: float) -> float:
        """Measured over assumed plain steps of the nearest measured size."""
        near = [m for m in self.medians if m != n and self.count(m) > 1 and self.shape[m] > self._base]
        if not near:
            return 1.0
        m = min(near, key=lambda m: abs(m - n))
        measured, assumed = self.medians[m] / plain_seconds - self._base, self.shape[m] - self._base
        return max(measured, LEAST_STEPS) / max(assumed, LEAST_STEPS)

    def table(self, plain_seconds: float, sizes: int = MAX_ROWS + 1) -> list[float]:
        """Plain steps of every size below `sizes`; what was measured more than once needs no assumption any more."""
        return [
            self.medians[n] / plain_seconds if self.count(n) > 1 else self.steps(n, plain_seconds) if n else shape
            for n, shape in enumerate(self.shape[:sizes])
        ]


class RoundCosts:
    """Costs of plain and drafted rounds as observed, over an assumption."""

    def __init__(self, assumed: Costs) -> None:
        self.assumed = assumed
        self._base = 0.0 if self.shape_known else 1.0
        self._read_token = assumed.prefill_token
        self._assume(
            [assumed.rows(max(n, 1)) for n in range(MAX_ROWS + 1)], [assumed.steps(k) for k in range(MAX_K + 1)]
        )

    def _assume(self, passes: Sequence[float], drafts: Sequence[float]) -> None:
        self._passes, self._drafts = SizeCosts(passes, self._base), SizeCosts(drafts)
        self._reads: deque[float] = deque(maxlen=TURN_ROUNDS)
        self._starts: deque[float] = deque(maxlen=TURN_ROUNDS)
        self._tables: dict[str, tuple[float, ...]] = {}

    def _turn(self, n: int, seconds: Iterable[float]) -> None:
        """The machine is faster or slower than it was: ratios stay, and these `seconds` of passes of n rows."""
        plain, self._read_token = self.plain_seconds(), self.read_steps()
        self._assume([1.0, 1.0, *self._passes.table(plain)[2:]], self._drafts.table(plain))
        self._passes.put(n, seconds)

    def _observe_pass(self, n: int, seconds: float) -> None:
        self._tables.clear()
        if last := self._passes.add(n, seconds):
            self._turn(n, last)

    def observe_plain(self, seconds: float) -> None:
        """A plain round between two others."""
        if seconds > 0:
            self._observe_pass(1, seconds)

    def observe_start(self, seconds: float) -> None:
        """A plain round that nothing was queued for: a plain step takes no longer.

        Where it takes much less than those before, they were measured while the machine was busy, as all else was.
        """
        if seconds > 0:
            self._starts.append(seconds)
            self._tables.clear()
            if self._passes.count(1) and seconds * SPIKE < self._passes.medians[1]:
                self._turn(1, [seconds])

    def is_first(self, k: int) -> bool:
        """Whether no round of k was observed yet."""
        return not self._passes.count(k + 1)

    def observe_drafted(self, k: int, draft_seconds: float | None, verify_seconds: float) -> None:
        """A round of k; `draft_seconds` None where they include reading, or where nothing was computed."""
        if verify_seconds > 0:
            self._observe_pass(k + 1, verify_seconds)
            if draft_seconds and k <= MAX_K:
                self._drafts.add(k, draft_seconds)

    def observe_reading(self, tokens: int, seconds: float) -> None:
        """The draft read `tokens` tokens of context at once."""
        if tokens >= PREFILL_TOKENS and seconds > 0:
            self._reads.append(seconds / tokens)

    @property
    def ready(self) -> bool:
        """A plain step was measured, in this process and since the machine turned."""
        return self._passes.count(1) > 0

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
        return bool(self._reads)

    @property
    def most_rows(self) -> int:
        """Of any pass that was measured."""
        return max(self._passes.medians, default=1)

    def batch_steps(self, n: int, seconds: float) -> float:
        """Plain steps of a pass that n replies share, which takes `seconds`; before a plain step was, of n rows."""
        return seconds / self.plain_seconds() if self.ready else self.pass_steps()[n - 1]

    def plain_seconds(self) -> float:
        """A plain step, now: its median; else as its start and wider passes suggest; 1 before anything was measured.

        It takes no longer than passes of several rows, which tell where a step was measured at a slow moment.
        """
        if self._passes.count(1):
            wider = [m for n, m in self._passes.medians.items() if n > 1 and self._passes.count(n) > 1]
            return min([self._passes.medians[1], *wider])
        implied = [median / self._passes.shape[n] for n, median in self._passes.medians.items()]
        return min((median_low(found) for found in (implied, self._starts) if found), default=1.0)

    def round_steps(self) -> tuple[float, ...]:
        """[K] plain steps of a round of K: K draft steps and a pass of K + 1 rows."""
        if "rounds" not in self._tables:
            plain = self.plain_seconds()
            passes, drafts = (1.0, *self._passes.table(plain, MAX_K + 2)[2:]), self._drafts.table(plain)
            self._tables["rounds"] = tuple(rows + steps for rows, steps in zip(passes, drafts, strict=True))
        return self._tables["rounds"]

    def pass_steps(self) -> tuple[float, ...]:
        """[K] plain steps of a pass of K + 1 rows."""
        if "passes" not in self._tables:
            self._tables["passes"] = (1.0, *self._passes.table(self.plain_seconds())[2:])
        return self._tables["passes"]

    def draft_seconds(self, k: int) -> float:
        """Of k draft steps."""
        plain = self.plain_seconds()
        return self._drafts.steps(k, plain) * plain

    def read_steps(self) -> float:
        """Plain steps of the draft's reading of one token of a long stretch of context."""
        return median_low(self._reads) / self.plain_seconds() if self._reads else self._read_token

    def to_dict(self) -> dict[str, Any]:
        """The measurements, to be assumed by a later process: ratios alone, as it measures its own plain steps."""
        if not self.ready:
            return asdict(self.assumed)
        plain = self.plain_seconds()
        verify, draft = (
            {n: round(steps, 4) for n, steps in enumerate(costs.table(plain)) if n >= first}
            for costs, first in ((self._passes, 2), (self._drafts, 1))
        )
        doubt = MEASURED_DOUBT if self.rows_measured else self.assumed.doubt
        return asdict(Costs(verify, draft, round(self.read_steps(), 6), doubt))
