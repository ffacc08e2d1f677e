"""How often a looked-up token stands, by the length of the match. (pure) Law: where little was seen, claim little.

Letters: position i = 1 … K of a draft behind a match of m tokens. When i - 1 tokens stood, the match is m + i - 1 long,
so each judged token teaches the rate of the length that it stood behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import exp
from typing import Any

# Matches of at least so many tokens are one class: longer ones are more often copies.
CLASSES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# A match of one token says nothing that a language model would not know better.
SHORTEST_MATCH = 2
# Before anything was seen: m / (m + 2), which counts as much as two judged tokens.
PRIOR_WEIGHT = 2.0
# What was seen fades while other text goes by, so that a class that failed is tried again.
FADE_TOKENS = 512


class LookupRecord:
    """Fading counts of judged and accepted tokens per class of match length."""

    def __init__(self) -> None:
        self._judged = [0.0] * len(CLASSES)
        self._stood = [0.0] * len(CLASSES)

    def rates(self, match: int, k: int) -> list[float]:
        """P(position i stands | the positions before it stood), i = 1 … k, behind a match of `match` tokens."""
        if match < SHORTEST_MATCH:
            return []
        return [self._rate(match + i) for i in range(k)]

    def drafted(self, match: int, k: int, accepted: int) -> None:
        """A draft of `k` looked-up tokens: `accepted` stood, the next (if any) fell, the rest were not judged."""
        for i in range(min(accepted + 1, k)):
            place = _class(match + i)
            self._judged[place] += 1
            self._stood[place] += i < accepted

    def passed(self, emitted: int) -> None:
        """So many tokens went by."""
        fade = exp(-emitted / FADE_TOKENS)
        self._judged = [count * fade for count in self._judged]
        self._stood = [count * fade for count in self._stood]

    def _rate(self, match: int) -> float:
        place = _class(match)
        prior = CLASSES[place] / (CLASSES[place] + 2)
        return (self._stood[place] + PRIOR_WEIGHT * prior) / (self._judged[place] + PRIOR_WEIGHT)

    def to_dict(self) -> dict[str, Any]:
        return {"judged": self._judged, "stood": self._stood}

    def restore(self, values: Mapping[str, Any]) -> None:
        """What `to_dict` wrote; another set of classes is left out."""
        judged, stood = ([float(v) for v in values[name]] for name in ("judged", "stood"))
        if len(judged) == len(stood) == len(CLASSES):
            self._judged, self._stood = judged, stood


def _class(match: int) -> int:
    return bisect_right(CLASSES, match) - 1
