"""Acceptance rates of drafted and of looked-up tokens (pure). Where little was seen, little is claimed.

Letters: position i = 1 … K; rate r_i = P(position i is accepted | those before it were), so that a round of K
yields 1 + r_1 + r_1 r_2 + … tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1, with a rate per position).
Where i - 1 looked-up tokens were accepted after a match of m tokens, the match has grown to m + i - 1: position i has
the rate of that length. Every token of the answer teaches one, whoever drafted it.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp, sqrt

from specdec_cli.core.request import MAX_DRAFT
from specdec_cli.engine.planning.tuning import FADE, PRIOR, WEIGHT


class Acceptance:
    """Fading counts of judged and accepted draft tokens by position, and the long-run rate that they are shrunk to."""

    def __init__(self, judged: float = 0.0, accepted: float = 0.0) -> None:
        """With the long-run counts of an earlier process."""
        self.judged: list[float] = []
        self.accepted: list[float] = []
        self.all_judged, self.all_accepted = judged, accepted

    @property
    def habit(self) -> float:
        """The pair's long-run share of judged draft tokens that were accepted."""
        return (self.all_accepted + WEIGHT * PRIOR) / (self.all_judged + WEIGHT)

    def observe(self, k: int, accepted: int) -> None:
        """A round of `k` drafted tokens: `accepted` of them, the next (if any) rejected, the rest not judged."""
        judged = min(accepted + 1, k)
        self.judged += [0.0] * (judged - len(self.judged))
        self.accepted += [0.0] * (judged - len(self.accepted))
        self.judged = [count * FADE + (i < judged) for i, count in enumerate(self.judged)]
        self.accepted = [count * FADE + (i < min(accepted, judged)) for i, count in enumerate(self.accepted)]
        self.all_judged += judged
        self.all_accepted += accepted

    @property
    def frontier(self) -> int:
        """Positions that were judged lately."""
        return sum(count >= 0.5 for count in self.judged)

    def rates(self, k: int, deviations: float = 0.0) -> list[float]:
        """r_1 … r_k, each shrunk to the pool, which is shrunk to the long-run rate; higher by so many deviations."""
        total = sum(self.judged) + WEIGHT
        pool = (sum(self.accepted) + WEIGHT * self.habit) / total
        judged = self.judged[:k] + [0.0] * (k - len(self.judged))
        accepted = self.accepted[:k] + [0.0] * (k - len(self.accepted))
        rates = [(a + WEIGHT * pool) / (j + WEIGHT) for a, j in zip(accepted, judged, strict=True)]
        return [min(rate + deviations * sqrt(rate * (1 - rate) / total), 1.0) for rate in rates]


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

    def observe(self, match: int, accepted: bool) -> None:
        """Learn from one token of the answer: after a match of `match` tokens the text repeated itself, or did not.

        The target chose the text, so a lookup would have been accepted exactly where the text repeated itself.
        """
        if match >= SHORTEST_MATCH:
            place = _class(match)
            self._judged[place] += 1
            self._accepted[place] += accepted

    def fade(self, emitted: int) -> None:
        """A round emitted `emitted` tokens: older counts weigh less."""
        fade = exp(-emitted / FADE_TOKENS)
        self._judged = [count * fade for count in self._judged]
        self._accepted = [count * fade for count in self._accepted]

    def _rate(self, match: int) -> float:
        place = _class(match)
        prior = CLASSES[place] / (CLASSES[place] + 2)
        return (self._accepted[place] + PRIOR_WEIGHT * prior) / (self._judged[place] + PRIOR_WEIGHT)


def _class(match: int) -> int:
    return bisect_right(CLASSES, match) - 1
