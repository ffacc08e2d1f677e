"""Acceptance rates of drafted tokens, recent and long-run (pure). Law: where little was seen, claim little.

Letters: position i = 1 … K; rate r_i = P(position i is accepted | those before it were), so that a round of K
yields 1 + r_1 + r_1 r_2 + … tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1, with a rate per position).
Not in the paper: rates are recent, and shrunk towards their pool and the pair's long-run rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, sqrt
from typing import Any

# Rounds after which a count weighs 1/e: while the text stays of one kind, a rate is known within 0.06.
WINDOW_ROUNDS = 32
# Change detection: forget the window when accepted − expected, over about 8 rounds, exceeds 3 standard deviations.
TURN_ROUNDS, TURN_DEVIATIONS = 8, 3.0
# Added to the variance of that sum, because the rates are estimates.
UNSURE = 0.25
# Tokens after which the long-run counts weigh 1/e: some dozen replies.
HABIT_TOKENS = 4096
# Before anything was seen: the usual 0.5-0.8 of published pairs, its lower half.
PRIOR_RATE = 0.6
# An assumption weighs as much as two judged tokens, so four rounds overrule it.
PRIOR_WEIGHT = 2.0


# A position's own rate against the pool: positions differ less than a few judged tokens suggest.
POSITION_WEIGHT = 6.0
# The rate of a position that was never judged follows from the one before it, known as well as by so many tokens.
UNSEEN_WEIGHT = 5.0
# Judged tokens after which a draft may be as deep as it pays; before, twice as deep as was judged, and two more.
KNOWN_TOKENS = 12


class AcceptanceRecord:
    """Fading counts of judged and accepted draft tokens, per position.

    Each judged token is accepted with its rate, so accepted minus expected stays near 0 by chance. When it does not,
    the text has turned to another kind, and the counts of the old kind are forgotten.
    """

    def __init__(self, window_rounds: float = WINDOW_ROUNDS, turn_deviations: float = TURN_DEVIATIONS) -> None:
        self._fade, self._turn = exp(-1 / window_rounds), turn_deviations
        self._judged: list[float] = []
        self._accepted: list[float] = []
        self._surprise = self._variance = 0.0
        self._habit_judged = PRIOR_WEIGHT
        self._habit_accepted = PRIOR_WEIGHT * PRIOR_RATE

    def drafted(self, k: int, accepted: int, emitted: int) -> None:
        """A round of `k` drafted tokens: `accepted` of them, the next (if any) rejected, the rest not judged."""
        judged = min(accepted + 1, k)
        self._expect(self.rates(judged), accepted)
        self.passed(emitted)
        missing = [0.0] * (judged - len(self._judged))
        self._judged += missing
        self._accepted += missing
        for i in range(judged):
            self._judged[i] += 1
            self._accepted[i] += i < accepted
        self._habit_judged += judged
        self._habit_accepted += accepted

    def _expect(self, rates: list[float], accepted: int) -> None:
        """Change detection: compares a round with its expectation, and forgets the window when it no longer holds."""
        fade = exp(-1 / TURN_ROUNDS)
        self._surprise = self._surprise * fade + accepted - sum(rates)
        self._variance = self._variance * fade**2 + sum(rate * (1 - rate) for rate in rates)
        if abs(self._surprise) > self._turn * sqrt(self._variance + UNSURE):
            self._judged, self._accepted = [], []
            self._surprise = self._variance = 0.0

    def passed(self, emitted: int) -> None:
        """A round emitted `emitted` tokens: older counts weigh less."""
        self._judged = [count * self._fade for count in self._judged]
        self._accepted = [count * self._fade for count in self._accepted]
        slow = exp(-emitted / HABIT_TOKENS)
        self._habit_judged = PRIOR_WEIGHT + (self._habit_judged - PRIOR_WEIGHT) * slow
        self._habit_accepted = PRIOR_WEIGHT * PRIOR_RATE + (self._habit_accepted - PRIOR_WEIGHT * PRIOR_RATE) * slow

    @property
    def habit(self) -> float:
        """The pair's long-run share of judged draft tokens that were accepted."""
        return self._habit_accepted / self._habit_judged

    @property
    def frontier(self) -> int:
        """The deepest position judged at least once within the window."""
        return max((i + 1 for i, judged in enumerate(self._judged) if judged >= 1), default=0)

    @property
    def reach(self) -> float:
        """The deepest draft that the judged tokens speak for."""
        return inf if sum(self._judged) >= KNOWN_TOKENS else 2 * self.frontier + 2

    def hopeful_rates(self, k: int, deviations: float) -> list[float]:
        """`rates`, each higher by so many standard deviations of what was judged."""
        weight = PRIOR_WEIGHT + sum(self._judged)
        return [min(rate + deviations * sqrt(rate * (1 - rate) / weight), 1.0) for rate in self.rates(k)]

    def rates(self, k: int) -> list[float]:
        """r_1 … r_k: each shrunk to the pool of all, the pool to the habit.

        A position that was never judged follows from the one before it: at most its rate or the pool's, and one more
        acceptance, since it is reached only where that one was accepted (the rule of succession).
        """
        total = PRIOR_WEIGHT + sum(self._judged)
        pool = (sum(self._accepted) + PRIOR_WEIGHT * self.habit) / total
        rates: list[float] = []
        weight = UNSEEN_WEIGHT + sum(self._judged)
        for i in range(k):
            judged, accepted = (self._judged[i], self._accepted[i]) if i < len(self._judged) else (0.0, 0.0)
            if judged >= 1 or not rates:
                expected, weight = pool, UNSEEN_WEIGHT + judged
            else:
                expected = (min(pool, rates[-1]) * weight + 1) / (weight + 1)
                weight += 1
            rates.append((accepted + POSITION_WEIGHT * expected) / (judged + POSITION_WEIGHT))
        return rates

    def to_dict(self) -> dict[str, Any]:
        """The habit: the only part that outlives a process."""
        return {
            "judged": self._habit_judged - PRIOR_WEIGHT,
            "accepted": self._habit_accepted - PRIOR_WEIGHT * PRIOR_RATE,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """The habit that `to_dict` wrote. Raises: KeyError, TypeError, ValueError for anything else."""
        judged, accepted = float(values["judged"]), float(values["accepted"])
        if not (
            0 <= judged < inf and -PRIOR_WEIGHT * PRIOR_RATE < accepted <= judged + PRIOR_WEIGHT * (1 - PRIOR_RATE)
        ):
            raise ValueError("tokens are accepted only where they were judged")
        self._habit_judged = PRIOR_WEIGHT + judged
        self._habit_accepted = PRIOR_WEIGHT * PRIOR_RATE + accepted
