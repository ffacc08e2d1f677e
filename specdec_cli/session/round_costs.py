"""What rounds cost in plain steps, kept from reply to reply (pure). Law: nothing is known without its doubt.

Letters: K drafted tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import fmean
from typing import Any

# Doubt (log) about what an earlier process measured: a moment ago, and an hour ago or more, when the machine is another
# one (heat, power, other programs). After so long it is not believed.
RECENT_DOUBT, EARLIER_DOUBT, RECENT_SECONDS, BELIEVED_SECONDS = 0.05, 0.1, 3600.0, 30 * 86400.0
# No round costs e^9 plain steps.
LARGEST_LOG = 9.0
# Replies by which the usual luck is known: what other programs do changes by the minute.
REPLIES = 8
# No more luck is believed than moves a cost to half or twice in one reply of fourteen (log, squared). A reply of few
# rounds cannot tell its own, and must not move the figures of the next ones.
MOST_LUCK = 0.15

# What slows a machine slows passes of one row and of several unevenly, so a reply's mean cost is not quite that of the
# moments in which its steps were measured: this share of what the last replies contradicted each other by (variance),
# and no more than `MOST_UNEVEN`. Fitted to real replies; `TYPICAL_SURPRISE` counts as so many replies.
UNEVEN_SHARE, MOST_UNEVEN = 0.3, 0.05**2
TYPICAL_SURPRISE, TYPICAL_REPLIES = 0.05**2, 4

RoundKind = tuple[str, int]
"""The drafter of a round, and its K."""


@dataclass(frozen=True, slots=True)
class Doubted:
    """The logarithm of a cost in plain steps, and the variance of what is known about it."""

    log: float
    variance: float

    def joined(self, other: Doubted) -> Doubted:
        """Both together, by their weights, where `other` was measured before.

        What they contradict each other by more than luck explains is a change since, as far as once their doubts; the
        rest is a disturbance of this measurement. A disturbed one moves little, and a cost that did change is followed
        within four to six replies, for each of them doubles the doubt about `other`.
        """
        luck = self.variance + other.variance
        surprise = max((self.log - other.log) ** 2 - luck, 0.0)
        doubted, disturbed = other.variance + min(surprise, luck), self.variance + max(surprise - luck, 0.0)
        weight = doubted / (disturbed + doubted)
        return Doubted(weight * self.log + (1 - weight) * other.log, disturbed * weight)


@dataclass(frozen=True, slots=True)
class KnownCosts:
    """The cost of a round of each kind, and how far luck may have moved what the last replies measured of it.

    `lucks` are variances of logarithms, the latest reply's last; `surprises` are squares of what replies found less
    what was known before.
    """

    costs: Mapping[RoundKind, Doubted] = field(default_factory=dict)
    lucks: tuple[float, ...] = ()
    surprises: tuple[float, ...] = ()

    def usual_luck(self, luck: float) -> float:
        """The mean of the last replies', that of the present one included."""
        return fmean(min(one, MOST_LUCK) for one in (*self.lucks[-REPLIES + 1 :], luck))

    def unevenness(self, surprise: float | None) -> float:
        """How far (variance) a reply's cost may be from that of its measured moments, the present surprise included."""
        found = [min(one, MOST_LUCK) for one in (*self.surprises[-REPLIES + 1 :], surprise) if one is not None]
        mean = (TYPICAL_REPLIES * TYPICAL_SURPRISE + sum(found)) / (TYPICAL_REPLIES + len(found))
        return min(UNEVEN_SHARE * mean, MOST_UNEVEN)

    def learned(self, costs: Mapping[RoundKind, Doubted], luck: float, surprise: float | None) -> KnownCosts:
        """After one more reply."""
        surprises = self.surprises if surprise is None else (*self.surprises, surprise)
        return KnownCosts(costs, (*self.lucks, luck)[-REPLIES:], surprises[-REPLIES:])


def costs_to_dict(known: KnownCosts, now_seconds: float) -> dict[str, Any]:
    """For the cost file; `now_seconds` since the epoch."""
    found = {f"{drafter} {k}": [cost.log, cost.variance] for (drafter, k), cost in known.costs.items()}
    return {"at": now_seconds, "costs": found, "lucks": list(known.lucks), "surprises": list(known.surprises)}


def costs_from_dict(values: Mapping[str, Any], now_seconds: float) -> KnownCosts:
    """What `costs_to_dict` wrote, doubted more, the older the more; nothing of what is too old, or nonsense."""
    try:
        age_seconds = now_seconds - float(values["at"])
        if not 0 <= age_seconds <= BELIEVED_SECONDS:
            return KnownCosts()
        found, doubt = {}, _doubt(age_seconds)
        for name, (log_cost, variance) in values["costs"].items():
            drafter, k = name.rsplit(" ", 1)
            cost = Doubted(float(log_cost), float(variance) + doubt)
            if not (isfinite(cost.log) and abs(cost.log) < LARGEST_LOG and doubt < cost.variance < inf):
                return KnownCosts()
            found[drafter, int(k)] = cost
        lucks, surprises = (tuple(float(one) for one in values[key][-REPLIES:]) for key in ("lucks", "surprises"))
        if not (all(0 < luck < inf for luck in lucks) and all(0 <= one < inf for one in surprises)):
            return KnownCosts()
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return KnownCosts()
    return KnownCosts(found, lucks, surprises)


def _doubt(age_seconds: float) -> float:
    """Variance (log) by which a cost may have changed since another process measured it: a random walk of an hour."""
    return RECENT_DOUBT**2 + (EARLIER_DOUBT**2 - RECENT_DOUBT**2) * min(age_seconds / RECENT_SECONDS, 1.0)
