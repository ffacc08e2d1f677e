"""What drafting gained over plain decoding, with how sure that is (pure). Law: no figure without its interval."""

from __future__ import annotations

from dataclasses import dataclass

ABOUT = 0.1  # a ratio this near to 1 whose interval holds 1 is "about as fast"


@dataclass(frozen=True, slots=True)
class Gain:
    """Seconds of plain decoding / seconds taken, for the same tokens: the estimate and its 95 % interval.

    `break_even` is the share of drafted tokens that must be accepted for drafting to pay here; None if unknown.
    """

    speedup: float
    low: float
    high: float
    break_even: float | None = None

    @property
    def sentence(self) -> str:
        """ "≈ 1.4× faster (1.1–1.7)", "≈ 0.8× as fast (0.7–0.9)" or "about as fast (0.9–1.1)"."""
        interval = f"({self.low:.1f}–{self.high:.1f})"
        if self.low <= 1 <= self.high and abs(self.speedup - 1) <= ABOUT:
            return f"about as fast {interval}"
        return f"≈ {self.speedup:.1f}× {'faster' if self.speedup > 1 else 'as fast'} {interval}"
