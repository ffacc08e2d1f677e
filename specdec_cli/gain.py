"""What drafting gained over plain decoding, with how sure that is (pure). Law: no figure without its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec_cli.format import percent

ABOUT = 0.1  # a ratio this near to 1 whose interval holds 1 is "about as fast"


@dataclass(frozen=True, slots=True)
class Gain:
    """Seconds of plain decoding / seconds taken, for the same tokens: the estimate and its 95 % interval.

    `break_even` is the share of drafted tokens that must be accepted for drafting to pay here, above 1 where not even
    all of them would do; None if unknown.
    """

    speedup: float
    low: float
    high: float
    break_even: float | None = None

    @classmethod
    def of_stats(cls, stats: Mapping[str, Any]) -> Gain | None:
        """The gain in the `stats` of a finish event; None where none is shown."""
        speedup, low, high = (stats.get(f"estimated_speedup{end}") for end in ("", "_low", "_high"))
        if speedup is None or low is None or high is None:
            return None
        return cls(speedup, low, high, stats.get("break_even_acceptance_rate"))

    @property
    def about_even(self) -> bool:
        """Whether it may well have been as fast as plain decoding, and was not far from it."""
        return self.low <= 1 <= self.high and abs(self.speedup - 1) <= ABOUT

    @property
    def sentence(self) -> str:
        """ "≈ 1.4× faster (1.1–1.7)", "≈ 0.8× as fast (0.7–0.9)" or "about as fast (0.9–1.1)".

        Nothing is called faster whose interval holds 1: "≈ 1.2× as fast (0.9–1.5)".
        """
        interval = f"({self.low:.1f}–{self.high:.1f})"
        if self.about_even:
            return f"about as fast {interval}"
        return f"≈ {self.speedup:.1f}× {'faster' if self.low > 1 else 'as fast'} {interval}"

    @property
    def pays_from(self) -> str:
        """ "pays from 35 %" of drafted tokens; empty where unknown."""
        if self.break_even is None:
            return ""
        return f"pays from {percent(self.break_even)}" if self.break_even <= 1 else "could not pay at 100 %"
