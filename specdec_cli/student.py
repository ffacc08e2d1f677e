"""Student's t (pure). Law: exact for whole degrees of freedom."""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, pi, sin, sqrt

CONFIDENCE = 0.95


@lru_cache(maxsize=1024)
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """t with P(|T| <= t) = `confidence` for Student's T with `freedom` degrees, by bisection of the exact series."""
    low, high = 0.0, 2.0
    while t_within(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < confidence else (low, middle)
    return high


def t_within(t: float, freedom: int) -> float:
    """P(|T| <= t): the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    square = cos(angle) ** 2
    odd = freedom % 2
    total, term = 0.0, cos(angle) if odd else 1.0
    for i in range(odd, freedom - 1, 2):
        total += term
        term *= square * (i + 1) / (i + 2)
    return (angle + sin(angle) * total) * 2 / pi if odd else sin(angle) * total
