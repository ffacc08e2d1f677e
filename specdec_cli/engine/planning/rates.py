"""Acceptance rates of drafted and of looked-up tokens (pure). Where little was seen, little is claimed.

Letters: position i = 1 … K; rate r_i = P(position i is accepted | those before it were), so that a round of K
yields 1 + r_1 + r_1 r_2 + … tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1, with a rate per position).
A draft's rate is the same at every position: recorded texts show no fall behind accepted tokens. Where i - 1 looked-up
tokens were accepted after a match of m tokens, the match has grown to m + i - 1: position i has the rate of that
length. Every token of the answer teaches one, whoever drafted it.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp

from specdec_cli.core.request import MAX_DRAFT

# Acceptance before anything was judged, worth so many judged tokens in the long run, which is worth so many of late.
# With 5 and 5, code and edits, warm, lose 3 %.
PRIOR, PRIOR_WEIGHT, HABIT_WEIGHT = 0.78, 8.0, 3.0
# Judged tokens after which one weighs 1/e, of late (twice as many: less than 1 % on recorded answers). At a new reply,
# those of late weigh a seventh: without them, a disturbed start on the worst chip loses 1 %.
FADE, RENEWED = 24.0, 0.15
# Tokens after which a count weighs 1/e in the long run: what failed is tried again in other text.
FADE_TOKENS = 512


class Acceptance:
    """Fading counts of judged and accepted draft tokens, of late and in the long run."""

    def __init__(self, judged: float = 0.0, accepted: float = 0.0) -> None:
        """With the long-run counts of an earlier process."""
        self.judged = self.accepted = 0.0
        self.all_judged, self.all_accepted = judged, accepted
        self._habit_before = self.habit

    def begin(self) -> None:
        """Another reply: another text, perhaps."""
        self._habit_before = self.habit
        self.judged, self.accepted = RENEWED * self.judged, RENEWED * self.accepted

    def observe(self, k: int, accepted: int) -> None:
        """A round of `k` drafted tokens: `accepted` of them, the next (if any) rejected, the rest not judged."""
        judged = min(accepted + 1, k)
        fade, long_fade = exp(-judged / FADE), exp(-judged / FADE_TOKENS)
        self.judged, self.accepted = fade * self.judged + judged, fade * self.accepted + accepted
        self.all_judged = long_fade * self.all_judged + judged
        self.all_accepted = long_fade * self.all_accepted + accepted

    @property
    def habit(self) -> float:
        """The pair's long-run share of judged draft tokens that were accepted."""
        return (self.all_accepted + PRIOR_WEIGHT * PRIOR) / (self.all_judged + PRIOR_WEIGHT)

    @property
    def rate(self) -> float:
        """P(a draft token is accepted | those before it were), shrunk to the long-run share before this reply.

        What this reply accepted must not count twice: six of six at first would make a rate of 0.96, and drafts of six
        that lose. What it rejected may: a draft that guesses nothing is found out sooner.
        """
        habit = min(self._habit_before, self.habit)
        return (self.accepted + HABIT_WEIGHT * habit) / (self.judged + HABIT_WEIGHT)


# Lower bounds of the classes of match length: longer matches are more often copies.
CLASSES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# A match of one token says nothing that a language model would not know better.
SHORTEST_MATCH = 2
# Longest lookup: with the token before it, the rows of one tile of Apple's GPUs.
MAX_LOOKUP = min(31, MAX_DRAFT)
# Before anything was seen: m / (m + 3), which counts as much as four judged tokens. Recorded answers (code, prose,
# questions) repeat themselves in 0.41, 0.57, 0.68 after matches of 2, 3, 4 tokens, edits in 0.59, 0.79, 0.90.
MATCH_PRIOR, MATCH_WEIGHT = 3.0, 4.0


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
        prior = CLASSES[place] / (CLASSES[place] + MATCH_PRIOR)
        return (self._accepted[place] + MATCH_WEIGHT * prior) / (self._judged[place] + MATCH_WEIGHT)


def _class(match: int) -> int:
    return bisect_right(CLASSES, match) - 1
