"""What a K would come to: rounds from a rehearsal, seconds from measured costs (pure).

Law: S(K) = tokens / plain steps, the tokens counted in the very rounds that a run at K would have, each round costing
what its drafted tokens and its rows were measured to cost (Leviathan et al. 2023, arXiv:2211.17192, with a verify pass
that is not free). Letters: K draft length, n rows of a target pass; costs are in plain steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import log
from statistics import median

from specdec_cli.bench.result import CostSample, Rehearsal
from specdec_cli.speedup import break_even_acceptance
from specdec_cli.stats import ratio


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Medians of what was measured, in plain steps: `draft` by K, `verify` by n; `plain_seconds` of one plain step."""

    draft: Mapping[int, float]
    verify: Mapping[int, float]
    plain_seconds: float

    @property
    def draft_step(self) -> float:
        """c: one draft token, on the average over all K."""
        return sum(self.draft.values()) / sum(self.draft)

    def round(self, drafted: int) -> float:
        """A round of `drafted` tokens; one that drafts nothing is a plain step."""
        return self.draft[drafted] + self.verify[drafted + 1] if drafted else 1.0

    def break_even(self, k: int) -> float | None:
        """The acceptance rate among judged tokens at which K = `k` is as fast as plain decoding; None: out of reach."""
        return break_even_acceptance(self.round(k), k)


def cost_curve(samples: Iterable[CostSample]) -> CostCurve | None:
    """Each sample against the plain step beside it, so that a machine that slows down in between changes nothing."""
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
class Tally:
    """Rounds behind the first token, added up; `emitted` leaves that token out."""

    rounds: float = 0.0
    emitted: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    rejected: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

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


def rounds_at(rehearsal: Rehearsal, k: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of every round that a run at K = `k` has behind its first token, from a replay.

    What a draft guesses behind a stop token is unknown, and counts as rejected.
    """
    found, at = [], 1
    while at < rehearsal.tokens:
        drafted = min(k, rehearsal.drafted[at], rehearsal.room - at - 1)
        accepted = min(drafted, rehearsal.accepted[at])
        found.append((drafted, accepted))
        at += accepted + 1
    return found


@dataclass(frozen=True, slots=True)
class Rounds:
    """`rounds_at`, added up; `lengths` says how many rounds drafted how many tokens."""

    accepted: int
    rejected: int
    lengths: Mapping[int, int]


@lru_cache(maxsize=8192)
def counted(rehearsal: Rehearsal, k: int) -> Rounds:
    """Kept, because costs change with every prompt and rounds do not."""
    rounds = rounds_at(rehearsal, k)
    rejected = sum(accepted < drafted for drafted, accepted in rounds)
    return Rounds(sum(accepted for _, accepted in rounds), rejected, Counter(drafted for drafted, _ in rounds))


def survival(rehearsal: Rehearsal) -> list[float]:
    """[j] = P(draft token j + 1 stands), over all entries that drafted so far."""
    found = []
    for place in range(rehearsal.deepest):
        drafted = sum(count > place for count in rehearsal.drafted)
        if not drafted:
            break
        accepted = zip(rehearsal.drafted, rehearsal.accepted, strict=True)
        found.append(sum(got > place for count, got in accepted if count > place) / drafted)
    return found


def tally(rehearsal: Rehearsal, k: int, curve: CostCurve) -> Tally:
    """What this answer comes to at K = `k`; `seconds` are in plain steps."""
    if not rehearsal.replayed:
        return _expected(rehearsal, k, curve)
    found = counted(rehearsal, k)
    return Tally(
        sum(found.lengths.values()),
        rehearsal.tokens - 1,
        sum(times * drafted for drafted, times in found.lengths.items()),
        found.accepted,
        found.rejected,
        _seconds(found, curve),
    )


def _expected(rehearsal: Rehearsal, k: int, curve: CostCurve) -> Tally:
    """From a run at a deeper K: how often each place stood there, as if rounds began at the same tokens here."""
    stands = survival(rehearsal)[:k]
    share = sum(count > 0 for count in rehearsal.drafted) / max(len(rehearsal.drafted), 1)
    accepted = share * sum(stands)
    cost = share * curve.round(k) + (1 - share)
    rejected = share * (1 - (stands[-1] if len(stands) == k else 0.0))
    return Tally(1.0, 1 + accepted, share * k, accepted, rejected, cost)


def log_speedup(rehearsal: Rehearsal, k: int, curve: CostCurve) -> float:
    """log S(K) of this answer."""
    if k == 0:
        return 0.0
    if rehearsal.replayed:  # the one figure of the tally that is asked for again and again
        return log((rehearsal.tokens - 1) / _seconds(counted(rehearsal, k), curve))
    found = tally(rehearsal, k, curve)
    return log(found.emitted / found.seconds)


def _seconds(rounds: Rounds, curve: CostCurve) -> float:
    return sum(times * curve.round(drafted) for drafted, times in rounds.lengths.items())


def predictable(rehearsal: Rehearsal) -> bool:
    """Whether there is a round behind the first token at all."""
    return rehearsal.tokens > 1 and bool(rehearsal.drafted)


def acceptance_by_position(rehearsals: Sequence[Rehearsal], k: int) -> list[float]:
    """[j] = rounds that accepted j + 1 tokens or more / rounds that drafted as many, at K = `k`."""
    rounds = [
        pair
        for one in rehearsals
        for pair in (rounds_at(one, k) if one.replayed else zip(one.drafted, one.accepted, strict=True))
    ]
    found = []
    for place in range(k):
        drafted = sum(d > place for d, _ in rounds)
        if not drafted:
            break
        found.append(sum(a > place for _, a in rounds) / drafted)
    return found
