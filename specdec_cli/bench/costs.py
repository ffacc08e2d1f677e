"""What rounds cost and yield, from the rounds of real answers (pure).

Letters: K draft length, n rows of a target pass; costs are in plain steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from specdec_cli.bench.result import CostSample, Sample
from specdec_cli.gain import break_even_acceptance
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

    def round(self, k: int) -> float:
        """Cost of a round of `k` drafted tokens."""
        return self.draft[k] + self.verify[k + 1]

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

    rounds: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    draft_seconds: float = 0.0
    seconds: float = 0.0

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

    @property
    def draft_share(self) -> float | None:
        """The draft's part of the time."""
        return ratio(self.draft_seconds, self.seconds)


def totals(samples: Iterable[Sample]) -> RoundTotals:
    """Sums over the rounds of these answers."""
    found = list(samples)
    return RoundTotals(
        sum(s.target_passes - 1 for s in found),
        sum(s.emitted_tokens - 1 for s in found),
        sum(s.draft_n for s in found),
        sum(s.draft_n_accepted for s in found),
        sum(s.rejected_n for s in found),
        sum(s.draft_seconds for s in found),
        sum(s.draft_seconds + s.verify_seconds for s in found),
    )


def acceptance_by_position(samples: Iterable[Sample]) -> list[float]:
    """[j] = rounds that accepted j + 1 tokens or more / rounds that drafted as many."""
    found = list(samples)
    drafted = zip_longest(*(sample.drafted_at for sample in found), fillvalue=0)
    accepted = zip_longest(*(sample.accepted_at for sample in found), fillvalue=0)
    return [sum(a) / sum(d) for d, a in zip(drafted, accepted, strict=True)]
