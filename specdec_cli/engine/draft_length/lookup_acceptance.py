"""Acceptance rates of looked-up tokens, by the length of the match (pure). Law: where little was seen, claim little.

Letters: position i = 1 … K of a draft after a match of m tokens. When i - 1 tokens were accepted, the match has grown
to m + i - 1, so position i has the rate of that length. Every token of the answer teaches one, whoever drafted it.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp

from specdec_cli.request import MAX_DRAFT

# Lower bounds of the classes of match length: longer matches are more often copies.
CLASSES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# A match of one token says nothing that a language model would not know better.
SHORTEST_MATCH = 2
# Longest lookup: with the token before it, the rows of one tile of Apple's GPUs.
MAX_LOOKUP = min(31, MAX_DRAFT)
# Before anything was seen: m / (m + 2), which counts as much as two judged tokens.
PRIOR_WEIGHT = 2.0
# Tokens after which a count weighs 1/e: a class that failed is tried again in other text.
FADE_TOKENS = 512


class LookupAcceptance:
    """Fading counts of judged and accepted tokens per class of match length."""

    def __init__(self) -> None:
        self._judged = [0.0] * len(CLASSES)
        self._accepted = [0.0] * len(CLASSES)

    def rates(self, match: int, k: int) -> list[float]:
        """P(position i is accepted | those before it were), i = 1 … k, after a match of `match` tokens."""
        if match < SHORTEST_MATCH:
            return []
        return [self._rate(match + i) for i in range(k)]

    def judged(self, match: int, accepted: bool) -> None:
        """After a match of `match` tokens the text went on as it had before, or did not; whoever drafted.

        The text is what the target chose, so this is what would have been accepted.
        """
        if match >= SHORTEST_MATCH:
            place = _class(match)
            self._judged[place] += 1
            self._accepted[place] += accepted

    def passed(self, emitted: int) -> None:
        """A round emitted `emitted` tokens."""
        fade = exp(-emitted / FADE_TOKENS)
        self._judged = [count * fade for count in self._judged]
        self._accepted = [count * fade for count in self._accepted]

    def _rate(self, match: int) -> float:
        place = _class(match)
        prior = CLASSES[place] / (CLASSES[place] + 2)
        return (self._accepted[place] + PRIOR_WEIGHT * prior) / (self._judged[place] + PRIOR_WEIGHT)


def _class(match: int) -> int:
    return bisect_right(CLASSES, match) - 1
