"""S(K), the speed of speculative decoding over plain decoding (pure). Law: the formula is written here only.

S(K) = E[tokens per round | K] / (K c + v(K + 1)) with c a draft step and v(n) a target pass over n rows, both in plain
steps (Leviathan et al. 2023, arXiv:2211.17192, theorem 3.8, with a verify pass that is not free).
Letters: K draft length, n rows of a target pass, a the probability that a judged draft token is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

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
