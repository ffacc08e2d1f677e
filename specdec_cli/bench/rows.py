"""One figure of a report, and what it rests on: one K, one kind of text (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.result import Length

# What the figure of one K rests on. Every display shows this decision: a handful of answers are no measurement.
Source = Literal["baseline", "measured", "too few"]


def source_of(speedup: Interval) -> Source:
    """`measured` on FEWEST_PROMPTS prompts or more."""
    return "measured" if speedup.prompts >= FEWEST_PROMPTS else "too few"


@dataclass(frozen=True, slots=True)
class Row:
    """One K: `measured` on enough prompts, or on too few. An unknown figure is None.

    `verify_steps` is v(K + 1); `draft_share` is the draft's part of a round's time.
    """

    k: Length
    measured: bool
    speedup: Interval | None
    tokens_per_second: Interval | None
    acceptance_rate: float | None = None
    judged_rate: float | None = None
    mean_acceptance_length: float | None = None
    draft_share: float | None = None
    verify_steps: float | None = None
    ttft_seconds: float | None = None
    peak_memory_bytes: int | None = None

    @property
    def source(self) -> Source:
        if self.k == 0:
            return "baseline"
        return "measured" if self.measured else "too few"


@dataclass(frozen=True, slots=True)
class KindRow:
    """The best K of one kind of text, of those measured on enough of its prompts; 0 where none is faster than plain."""

    kind: str
    k: Length
    speedup: Interval
    acceptance_rate: float | None

    @property
    def worth_it(self) -> bool:
        """Whether drafting is measured to pay for this kind."""
        return self.speedup.low > 1.0

    @property
    def source(self) -> Source:
        return "measured" if self.k else "baseline"

    @property
    def advice(self) -> str:
        """What to do for this kind; empty where the K is simply to be used."""
        if self.k == 0:
            return "decode plainly"
        return "" if self.worth_it else "within noise"
