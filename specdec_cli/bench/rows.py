"""One figure of a report, and what it rests on: one K, one kind of text (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdec_cli.bench.intervals import FEWEST_PROMPTS, Interval
from specdec_cli.bench.result import Length

# What the figure of one K rests on. Every display shows this decision: a handful of answers are no measurement.
Source = Literal["baseline", "measured", "predicted", "too few"]


@dataclass(frozen=True, slots=True)
class Row:
    """One K: `measured` end to end, else `predicted` from acceptance and costs, else of too few prompts.

    An unknown figure is None.

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
    predicted: bool = True

    @property
    def source(self) -> Source:
        if self.k == 0:
            return "baseline"
        return "measured" if self.measured else "predicted" if self.predicted else "too few"


@dataclass(frozen=True, slots=True)
class KindFigure:
    """The speed-up of one K on one kind of text."""

    speedup: Interval
    source: Source


@dataclass(frozen=True, slots=True)
class KindRow:
    """The best K of one kind of text, 0 where none is faster than plain decoding.

    `measured` if that K was confirmed on enough prompts of this kind.
    """

    kind: str
    k: Length
    speedup: Interval
    measured: bool
    acceptance_rate: float | None

    @property
    def worth_it(self) -> bool | None:
        """Whether drafting pays for this kind; None where there are too few prompts to tell."""
        return None if self.speedup.prompts < FEWEST_PROMPTS else self.speedup.low > 1.0

    @property
    def source(self) -> Source:
        return "baseline" if self.k == 0 else "measured" if self.measured else "predicted"

    @property
    def advice(self) -> str:
        """What to do for this kind; empty where the K is simply to be used."""
        if self.k == 0:
            return "decode plainly"
        return {True: "", False: "don't", None: "too few"}[self.worth_it]
