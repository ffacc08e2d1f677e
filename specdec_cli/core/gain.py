"""How fast drafting is against plain decoding: the formula, the figure and its interval in words (pure).

S(K) = E[tokens per round | K] / (K c + v(K + 1)) with c a draft step and v(n) a target pass over n rows, both in plain
steps (Leviathan et al. 2023, arXiv:2211.17192, theorem 3.8, with a verify pass that is not free). No measured figure is
shown without its interval.
Letters: K draft length, n rows of a target pass, a the probability that a judged draft token is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

# Cost of one more verified row, as a share of a plain step, where nothing was measured.
TYPICAL_ROW_COST = 0.25


def expected_tokens(rates: Sequence[float]) -> list[float]:
    """[K] = expected tokens of a round of K, K = 0 … len(rates): 1, 1 + r_1, 1 + r_1 + r_1 r_2, …

    rates[i] = P(position i + 1 is accepted | the positions before it were).
    """
    return list(accumulate(accumulate(rates, lambda a, b: a * b), initial=1.0))


def tokens_per_round(acceptance: float, k: int) -> float:
    """1 + a + … + a^K: expected tokens of a round whose draft tokens are each accepted with probability a."""
    return expected_tokens([acceptance] * k)[k]


def speedup(tokens: float, round_steps: float) -> float:
    """S: tokens of a round over its cost in plain steps."""
    return tokens / round_steps


def round_steps(k: int, draft_step: float, verify_steps: float) -> float:
    """Cost of a round of K in plain steps: K c + v(K + 1)."""
    return k * draft_step + verify_steps


def break_even_acceptance(tokens: float, k: int) -> float | None:
    """The judged acceptance at which a round of K yields `tokens`; None where full acceptance yields fewer.

    Solves 1 + a + … + a^K = tokens by bisection.
    """
    if tokens > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_round(middle, k) < tokens else (low, middle)
    return high


def break_even_share(round_steps: float, k: float) -> float:
    """The share of drafted tokens that must be accepted for rounds of `round_steps` plain steps to pay.

    A round yields its accepted tokens and one more, so S = 1 where 1 + share K = its cost: no assumption about how
    acceptance falls with the position. `k` is the mean over rounds. 0: always pays; above 1: not even full acceptance.
    """
    return max(round_steps - 1, 0.0) / k


def interpolate(table: Mapping[int, float], n: int, slope: float = 0.0) -> float:
    """`table` at n: linear between entries, beyond the last one with the mean slope of all, at least 0.

    `slope` is used where the table has a single entry.
    """
    below = max(m for m in table if m <= n)
    above = min((m for m in table if m > n), default=None)
    if above is None:
        first = min(table)
        mean = max((table[below] - table[first]) / (below - first), 0.0) if below > first else slope
        return table[below] + (n - below) * mean
    return table[below] + (table[above] - table[below]) * (n - below) / (above - below)


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
        return f"pays from ≈ {100 * share:.0f} % ({100 * low:.0f}–{100 * high:.0f})"
