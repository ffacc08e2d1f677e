"""Predicts the speed-up of a K: rounds from offline acceptance, seconds from measured costs (pure).

Law: S(K) = tokens / plain steps, counted in the very rounds that a run at K would have. A round costs what its drafted
tokens and its rows were measured to cost (Leviathan et al. 2023, arXiv:2211.17192, with a verify pass that is not
free). Letters: K draft length, n rows of a target pass; costs are in plain steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import log
from statistics import median

from specdec_cli.bench.result import CostSample, OfflineAcceptance
from specdec_cli.speedup import break_even_acceptance
from specdec_cli.stats import ratio


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Median costs in plain steps: `draft` by K, `verify` by n. `plain_seconds` is the length of a plain step."""

    draft: Mapping[int, float]
    verify: Mapping[int, float]
    plain_seconds: float

    @property
    def draft_step(self) -> float:
        """c: the cost of one draft token, averaged over all K."""
        return sum(self.draft.values()) / sum(self.draft)

    def round(self, drafted: int) -> float:
        """Cost of a round of `drafted` tokens; one that drafts nothing is a plain step."""
        return self.draft[drafted] + self.verify[drafted + 1] if drafted else 1.0

    def break_even(self, k: int) -> float | None:
        """The judged acceptance rate at which K = `k` is as fast as plain decoding; None where even 1 is not enough."""
        return break_even_acceptance(self.round(k), k)


def cost_curve(samples: Iterable[CostSample]) -> CostCurve | None:
    """Each sample over the plain step measured next to it: a machine that slows down changes both."""
    draft: dict[int, list[float]] = {}
    verify: dict[int, list[float]] = {}
    plain = []
    for sample in samples:
        draft.setdefault(sample.k, []).append(sample.draft_seconds / sample.plain_seconds)
        verify.setdefault(sample.k + 1, []).append(sample.verify_seconds / sample.plain_seconds)
        plain.append(sample.plain_seconds)
    if not plain:
        return None
    drafts = {k: median(values) for k, values in sorted(draft.items())}
    return CostCurve(drafts, {n: median(values) for n, values in sorted(verify.items())}, median(plain))


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """Sums over the rounds after the first token; `emitted` excludes that token."""

    rounds: float = 0.0
    emitted: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    rejected: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: RoundTotals) -> RoundTotals:
        return RoundTotals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return ratio(self.accepted, self.drafted)

    @property
    def judged_rate(self) -> float | None:
        """accepted / (accepted + rejected)."""
        return ratio(self.accepted, self.accepted + self.rejected)

    @property
    def mean_acceptance_length(self) -> float | None:
        """Emitted tokens per target pass."""
        return ratio(self.emitted, self.rounds)


def rounds_at(offline: OfflineAcceptance, k: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of every round that a run at K = `k` has after its first token, from teacher forcing.

    What a draft guesses after a stop token is unknown, and counts as rejected.
    """
    found, at = [], 1
    while at < offline.tokens:
        drafted = min(k, offline.drafted[at], offline.room - at - 1)
        accepted = min(drafted, offline.accepted[at])
        found.append((drafted, accepted))
        at += accepted + 1
    return found


@dataclass(frozen=True, slots=True)
class Rounds:
    """Sums over `rounds_at`; `lengths[n]` counts the rounds that drafted n tokens."""

    accepted: int
    rejected: int
    lengths: Mapping[int, int]


@lru_cache(maxsize=8192)
def counted(offline: OfflineAcceptance, k: int) -> Rounds:
    """Cached: costs change with every prompt, rounds do not."""
    rounds = rounds_at(offline, k)
    rejected = sum(accepted < drafted for drafted, accepted in rounds)
    return Rounds(sum(accepted for _, accepted in rounds), rejected, Counter(drafted for drafted, _ in rounds))


def survival(offline: OfflineAcceptance) -> list[float]:
    """[j] = P(draft token j + 1 is accepted), over all entries that drafted that many."""
    return _by_position(list(zip(offline.drafted, offline.accepted, strict=True)), offline.deepest)


def totals(offline: OfflineAcceptance, k: int, curve: CostCurve) -> RoundTotals:
    """Sums over this answer at K = `k`; `seconds` are in plain steps."""
    if not offline.replayed:
        return _expected(offline, k, curve)
    found = counted(offline, k)
    return RoundTotals(
        sum(found.lengths.values()),
        offline.tokens - 1,
        sum(times * drafted for drafted, times in found.lengths.items()),
        found.accepted,
        found.rejected,
        _seconds(found, curve),
    )


def _expected(offline: OfflineAcceptance, k: int, curve: CostCurve) -> RoundTotals:
    """One expected round, from a run at a deeper K: acceptance by position there is taken as acceptance here."""
    rates = survival(offline)[:k]
    share = sum(count > 0 for count in offline.drafted) / max(len(offline.drafted), 1)
    accepted = share * sum(rates)
    cost = share * curve.round(k) + (1 - share)
    rejected = share * (1 - (rates[-1] if len(rates) == k else 0.0))
    return RoundTotals(1.0, 1 + accepted, share * k, accepted, rejected, cost)


def log_speedup(offline: OfflineAcceptance, k: int, curve: CostCurve) -> float:
    """log S(K) of this answer."""
    if k == 0:
        return 0.0
    if offline.replayed:  # the sweep asks for this figure again and again
        return log((offline.tokens - 1) / _seconds(counted(offline, k), curve))
    found = totals(offline, k, curve)
    return log(found.emitted / found.seconds)


def _seconds(rounds: Rounds, curve: CostCurve) -> float:
    return sum(times * curve.round(drafted) for drafted, times in rounds.lengths.items())


def predictable(offline: OfflineAcceptance) -> bool:
    """Whether the answer has a round after its first token."""
    return offline.tokens > 1 and bool(offline.drafted)


def acceptance_by_position(offline: Sequence[OfflineAcceptance], k: int) -> list[float]:
    """[j] = rounds that accepted j + 1 tokens or more / rounds that drafted as many, at K = `k`."""
    rounds = [
        pair
        for one in offline
        for pair in (rounds_at(one, k) if one.replayed else zip(one.drafted, one.accepted, strict=True))
    ]
    return _by_position(rounds, k)


def _by_position(rounds: Sequence[tuple[int, int]], k: int) -> list[float]:
    """The rates of the first `k` positions of (drafted, accepted) rounds, up to the last position drafted."""
    found = []
    for place in range(k):
        drafted = sum(d > place for d, _ in rounds)
        if not drafted:
            break
        found.append(sum(a > place for _, a in rounds) / drafted)
    return found
