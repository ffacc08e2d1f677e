"""What rounds cost: as assumed, and as measured here (pure).

A cost is the median of the last rounds of its size. Of a size that was not measured, the assumption is bent as its
nearest measured neighbour is. What was measured of drafting is forgotten where nothing was drafted for a while, so
that no slow moment stops drafting for good.

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

# Rounds of one size whose lower median counts: outliers are slow.
RECENT_ROUNDS = 5
# Plain tokens in a row after which drafting is assumed to cost what it was before anything was measured, and drafted
# ones after which a plain step is measured anew.
FORGET_TOKENS = 128
# A pass of several rows that takes less than such a share of a plain step tells that the step was measured in a slow
# moment, as the first one of a process may be; it is measured anew after so many tokens. After 8, noise alone cost a
# cold reply of 40 tokens 2 % (recorded answers).
IMPOSSIBLE_STEPS, SETTLED_TOKENS = 0.9, 32
# A pass that nothing was queued for takes so many plain steps longer. Without it, code and edits, warm, lose 3 %.
START_STEPS = 0.08
# Fewer tokens in one read say more about overhead than about the cost of a token: code and edits, warm, lose 2 % by
# them.
PREFILL_TOKENS = 32
# No size is measured to cost less than so many plain steps beyond what all sizes cost, or ratios would not be any.
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Costs:
        """What `asdict` made and JSON kept, whose keys are text. Raises KeyError, TypeError or ValueError."""
        verify, draft = ({int(n): float(v) for n, v in values[name].items()} for name in ("verify", "draft"))
        return cls(verify, draft, float(values["prefill_token"]))

    def passes(self) -> list[float]:
        """[n] = plain steps of an n-row target pass."""
        table = {**self.verify, 1: 1.0}
        return [interpolate(table, max(n, 1), TYPICAL_ROW_COST) for n in range(MAX_ROWS + 1)]

    def drafts(self) -> list[float]:
        """[K] = plain steps of K draft steps."""
        return [interpolate({**self.draft, 0: 0.0}, k) for k in range(MAX_K + 1)]


class SizeCosts:
    """Seconds of one kind of pass by its size, over `shape`[size], the assumed plain steps, of which all sizes have
    `base` in common."""

    def __init__(self, shape: Sequence[float], base: float = 0.0) -> None:
        self._shape, self._base = shape, base
        self._recent: dict[int, deque[float]] = {}
        self.medians: dict[int, float] = {}

    def count(self, n: int) -> int:
        """Rounds of size n that count."""
        return len(self._recent.get(n, ()))

    def add(self, n: int, seconds: float) -> None:
        recent = self._recent.setdefault(n, deque(maxlen=RECENT_ROUNDS))
        recent.append(seconds)
        self.medians[n] = median_low(recent)

    def table(self, plain_seconds: float, sizes: int) -> list[float]:
        """Plain steps of every size below `sizes`.

        One round of a size makes it seem no dearer than expected: a device may have compiled its kernels in it.
        """
        found = []
        for n in range(sizes):
            m = self._nearest(n)
            bend = self._beyond(self.medians[m] / plain_seconds) / self._beyond(self._shape[m]) if m else 1.0
            steps = self._base + (self._shape[n] - self._base) * bend if n else self._shape[n]
            if seen := self.count(n):
                measured = max(self.medians[n] / plain_seconds, self._base)
                steps = measured if seen > 1 else min(measured, steps)
            found.append(steps)
        return found

    def _nearest(self, n: int) -> int:
        """The size nearest to n that was measured twice and is assumed to cost more than all have in common; else 0."""
        near = (m for m in self.medians if m != n and self.count(m) > 1 and self._shape[m] > self._base)
        return min(near, key=lambda m: (abs(m - n), m), default=0)

    def _beyond(self, steps: float) -> float:
        return max(steps - self._base, LEAST_STEPS)


class RoundCosts:
    """Costs of plain and drafted rounds as observed, over what an earlier process `kept`, over an assumption."""

    def __init__(self, assumed: Costs, kept: Costs | None = None) -> None:
        self.assumed, self.kept = assumed, kept
        self._plain: deque[float] = deque(maxlen=RECENT_ROUNDS)
        self._run_seconds, self._run_steps = 0.0, 0.0
        # Since a plain step was measured last.
        self._unmeasured_tokens = 0
        self._assume(kept or assumed)

    def _assume(self, costs: Costs) -> None:
        self._passes, self._drafts = SizeCosts(costs.passes(), 1.0), SizeCosts(costs.drafts())
        self._read_token = costs.prefill_token
        self._reads: deque[float] = deque(maxlen=RECENT_ROUNDS)
        self._tables: dict[str, tuple[float, ...]] = {}

    def forget(self) -> None:
        """What was measured of drafting, here and by earlier processes, counts no more."""
        self.kept = None
        self._assume(self.assumed)

    def count_tokens(self, emitted: int) -> None:
        """A round of any kind is about to be observed, which emitted so many tokens."""
        self._unmeasured_tokens += emitted

    def observe_plain(self, seconds: float, queued: bool, followed: bool) -> None:
        """A plain round. `queued`: launched before its predecessor was read; `followed`: so was its successor.

        Where passes overlap only a round in the middle of several tells what a step takes, or their sum.
        """
        if seconds <= 0:
            return
        self._run_seconds = seconds + (self._run_seconds if queued else 0.0)
        self._run_steps = 1 + (self._run_steps if queued else START_STEPS)
        if queued and followed:
            self._add_plain(seconds)
        elif not followed and self._run_steps < 4:
            self._add_plain(self._run_seconds / self._run_steps)

    def _add_plain(self, seconds: float) -> None:
        if self._unmeasured_tokens >= FORGET_TOKENS:  # the machine was another then
            self._plain.clear()
        self._plain.append(seconds)
        self._unmeasured_tokens = 0
        self._tables.clear()

    def observe_drafted(self, k: int, draft_seconds: float | None, verify_seconds: float) -> None:
        """A round of k; `draft_seconds` None where they include reading, or where nothing was computed."""
        if verify_seconds > 0:
            self._tables.clear()
            self._passes.add(k + 1, verify_seconds)
            if draft_seconds and k <= MAX_K:
                self._drafts.add(k, draft_seconds)

    def observe_reading(self, tokens: int, seconds: float) -> None:
        """The draft read `tokens` tokens of context at once."""
        if tokens >= PREFILL_TOKENS and seconds > 0:
            self._reads.append(seconds / tokens)

    @property
    def plain_measured(self) -> bool:
        """Whether a plain step was measured in this process."""
        return bool(self._plain)

    @property
    def plain_is_stale(self) -> bool:
        """Whether a plain step is to be measured anew, as drafts may seem to pay that do not."""
        if self._unmeasured_tokens < SETTLED_TOKENS or not self._plain:
            return False
        impossible = self.plain_seconds() < IMPOSSIBLE_STEPS * median_low(self._plain)
        return impossible or self._unmeasured_tokens >= FORGET_TOKENS

    @property
    def rows_measured(self) -> bool:
        """Whether a pass of several rows was measured more than once, here or by an earlier process."""
        return self.kept is not None or any(self._passes.count(n) > 1 for n in self._passes.medians)

    @property
    def read_measured(self) -> bool:
        return bool(self._reads)

    @property
    def most_rows(self) -> int:
        """Of any pass whose cost is known from here or from an earlier process."""
        return MAX_ROWS if self.kept else max(self._passes.medians, default=1)

    def plain_seconds(self) -> float:
        """A plain step, now: its median, or what a pass of several rows takes if that is less; 1 before any was."""
        wider = [median for n, median in self._passes.medians.items() if self._passes.count(n) > 1]
        plain: Iterable[float] = [median_low(self._plain)] if self._plain else []
        return min([*plain, *wider] or self._passes.medians.values(), default=1.0)

    def round_steps(self) -> tuple[float, ...]:
        """[K] plain steps of a round of K: K draft steps and a pass of K + 1 rows."""
        if "rounds" not in self._tables:
            drafts = self._drafts.table(self.plain_seconds(), MAX_K + 1)
            self._tables["rounds"] = tuple(map(sum, zip(self.pass_steps(), drafts, strict=False)))
        return self._tables["rounds"]

    def pass_steps(self) -> tuple[float, ...]:
        """[K] plain steps of a pass of K + 1 rows."""
        if "passes" not in self._tables:
            self._tables["passes"] = (1.0, *self._passes.table(self.plain_seconds(), MAX_ROWS + 1)[2:])
        return self._tables["passes"]

    def draft_seconds(self, k: int) -> float:
        """Of k draft steps."""
        plain = self.plain_seconds()
        return self._drafts.table(plain, k + 1)[k] * plain

    def read_steps(self) -> float:
        """Plain steps of the draft's reading of one token of a long stretch of context."""
        return median_low(self._reads) / self.plain_seconds() if self._reads else self._read_token

    def to_dict(self) -> dict[str, Any]:
        """What a later process starts from: ratios alone, as it measures its own plain steps."""
        plain = self.plain_seconds()
        verify = enumerate(self._passes.table(plain, MAX_ROWS + 1))
        draft = enumerate(self._drafts.table(plain, MAX_K + 1))
        return asdict(
            Costs(
                {n: round(steps, 4) for n, steps in verify if n > 1},
                {k: round(steps, 4) for k, steps in draft if k},
                round(self.read_steps(), 6),
            )
        )
