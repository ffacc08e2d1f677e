"""What rounds cost in plain steps, kept from reply to reply (pure). Law: nothing is known without its doubt.

Letters: K drafted tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

# Doubt (log) about what an earlier process measured, which is not believed after so long.
EARLIER_DOUBT, BELIEVED_SECONDS = 0.1, 30 * 86400.0
# No round costs e^9 plain steps.
LARGEST_LOG = 9.0

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


def costs_to_dict(costs: Mapping[RoundKind, Doubted], now_seconds: float) -> dict[str, Any]:
    """For the cost file; `now_seconds` since the epoch."""
    found = {f"{drafter} {k}": [cost.log, cost.variance] for (drafter, k), cost in costs.items()}
    return {"at": now_seconds, "costs": found}


def costs_from_dict(values: Mapping[str, Any], now_seconds: float) -> dict[RoundKind, Doubted]:
    """What `costs_to_dict` wrote, doubted more; nothing of what is too old, or nonsense."""
    try:
        if not 0 <= now_seconds - float(values["at"]) <= BELIEVED_SECONDS:
            return {}
        found = {}
        for name, (log_cost, variance) in values["costs"].items():
            drafter, k = name.rsplit(" ", 1)
            cost = Doubted(float(log_cost), float(variance) + EARLIER_DOUBT**2)
            if not (isfinite(cost.log) and abs(cost.log) < LARGEST_LOG and EARLIER_DOUBT**2 < cost.variance < inf):
                return {}
            found[drafter, int(k)] = cost
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return found
