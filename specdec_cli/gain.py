"""What drafting gained over plain decoding, with how sure that is (pure). Law: no figure without its interval.

A ratio is seconds of plain decoding / seconds taken. Every command says it in the words of `ratio_words`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specdec_cli.format import percent

# An interval within so much of 1 that holds 1 is "no difference": it rules out all that anybody would notice.
NOTICEABLE = 0.1
# Rounds below which nothing is compared.
FEWEST_ROUNDS = 16
TOO_FEW = "not enough rounds to compare"
# An interval of a share that is wider than this says nothing.
WIDEST_SHARE = 0.4

Verdict = Literal["faster", "slower", "no difference", "cannot tell yet"]


def verdict(low: float, high: float) -> Verdict:
    """What a 95 % interval of a ratio allows to be said."""
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "no difference" if low >= 1 - NOTICEABLE and high <= 1 + NOTICEABLE else "cannot tell yet"


def ratio_words(speedup: float, low: float, high: float) -> str:
    """ "1.40× faster (1.12–1.71)", "slower, 0.83× (0.79–0.88)", "no difference (0.94–1.07)" or
    "cannot tell yet (0.60–1.80)".

    Nothing is called faster or slower whose interval holds 1.
    """
    word, interval = verdict(low, high), f"({low:.2f}–{high:.2f})"
    figure = {"faster": f"{speedup:.2f}× faster", "slower": f"slower, {speedup:.2f}×"}
    return f"{figure.get(word, word)} {interval}"


def unknown_words(rounds: int) -> str:
    """What is said of so many rounds that have no figure."""
    return TOO_FEW if rounds < FEWEST_ROUNDS else "cannot tell yet"


@dataclass(frozen=True, slots=True)
class Gain:
    """Seconds of plain decoding / seconds taken, for the same tokens: the estimate and its 95 % interval.

    `break_even` is the share of drafted tokens that must be accepted for drafting to pay here, above 1 where not even
    all of them would do, with its own 95 % interval; None if unknown.
    """

    speedup: float
    low: float
    high: float
    break_even: float | None = None
    break_even_low: float | None = None
    break_even_high: float | None = None

    @classmethod
    def of_stats(cls, stats: Mapping[str, Any]) -> Gain | None:
        """The gain in the `stats` of a finish event; None where none is shown."""
        speedup, low, high = (stats.get(f"estimated_speedup{end}") for end in ("", "_low", "_high"))
        if speedup is None or low is None or high is None:
            return None
        shares = (stats.get(f"break_even_acceptance_rate{end}") for end in ("", "_low", "_high"))
        return cls(speedup, low, high, *shares)

    @property
    def verdict(self) -> Verdict:
        return verdict(self.low, self.high)

    @property
    def sentence(self) -> str:
        """The ratio in words: `ratio_words`."""
        return ratio_words(self.speedup, self.low, self.high)

    @property
    def pays_from(self) -> str:
        """ "pays from ≈ 45 % (35–60)" of drafted tokens; empty where that is unknown or too uncertain to help."""
        share, low, high = self.break_even, self.break_even_low, self.break_even_high
        if share is None or low is None or high is None or high > 1 or high - low > WIDEST_SHARE:
            return ""
        return f"pays from ≈ {percent(share)} ({100 * low:.0f}–{100 * high:.0f})"
