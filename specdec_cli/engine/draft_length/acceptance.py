"""Acceptance rates of drafted tokens, recent and long-run (pure). Law: where little was seen, claim little.

Letters: position i = 1 … K; rate r_i = P(position i is accepted | those before it were), so that a round of K
yields 1 + r_1 + r_1 r_2 + … tokens (Leviathan et al. 2023, arXiv:2211.17192, equation 1, with a rate per position).
"""

from __future__ import annotations

from specdec_cli.engine.draft_length.constants import FADE, PRIOR, WEIGHT


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

    def rates(self, k: int) -> list[float]:
        """r_1 … r_k, each shrunk to the pool, which is shrunk to the long-run rate."""
        pool = (sum(self.accepted) + WEIGHT * self.habit) / (sum(self.judged) + WEIGHT)
        judged = self.judged[:k] + [0.0] * (k - len(self.judged))
        accepted = self.accepted[:k] + [0.0] * (k - len(self.accepted))
        return [(a + WEIGHT * pool) / (j + WEIGHT) for a, j in zip(accepted, judged, strict=True)]
