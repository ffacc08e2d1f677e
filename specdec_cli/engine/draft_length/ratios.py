"""Costs as ratios to a plain step: assumed before anything is measured, or kept by an earlier process (pure).

Letters: n rows of a target pass (n = K + 1), K draft tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec_cli.speedup import TYPICAL_ROW_COST, interpolate

# Doubts (log): nothing is known of the machine's GPU; it was measured by an earlier process.
UNKNOWN_DOUBT, MEASURED_DOUBT = 0.5, 0.1
# Costs are ratios to a plain step, of passes of few rows: anything beyond is a damaged file, not a machine.
LEAST_RATIO, MOST_RATIO, MOST_ROWS = 1e-6, 1e6, 1024


@dataclass(frozen=True, slots=True)
class Costs:
    """Assumptions before anything is measured, all in plain steps: n rows of the target, K draft steps, a prompt token.

    Tables are linear between and beyond their entries; a draft table needs one entry, a verify table none.
    """

    verify: Mapping[int, float] = field(default_factory=dict)
    draft: Mapping[int, float] = field(default_factory=lambda: {1: 0.1})
    # Prompt tokens are read many at a time, eight in about a step's time (published: 350 tok/s read, 50 tok/s decoded).
    prefill_token: float = 0.1 / 8
    # How far (log) these ratios may be off: until a plain step was measured, no smaller gain is believed.
    doubt: float = UNKNOWN_DOUBT

    @classmethod
    def of_ratio(cls, ratio: float, row: float = TYPICAL_ROW_COST) -> Costs:
        """A draft step costs what its weights weigh beside the target's (`ratio`); each further row costs `row`."""
        return cls({2: 1 + row}, {1: ratio}, ratio / 8)

    def rows(self, n: int) -> float:
        """Plain steps of an n-row target pass."""
        return interpolate({**self.verify, 1: 1.0}, n, TYPICAL_ROW_COST)

    def steps(self, k: int) -> float:
        """Plain steps of k draft steps."""
        return interpolate({**self.draft, 0: 0.0}, k, 0.0)


def costs_from_dict(values: Mapping[str, Any]) -> Costs:
    """The Costs whose `asdict` went through JSON, where keys are text. Raises KeyError, TypeError or ValueError."""
    verify, draft = ({int(n): float(v) for n, v in values[name].items()} for name in ("verify", "draft"))
    costs = Costs(verify, draft, float(values["prefill_token"]), float(values["doubt"]))
    ratios = (*verify.values(), *draft.values(), costs.prefill_token, costs.doubt)
    possible = all(LEAST_RATIO <= ratio <= MOST_RATIO for ratio in ratios)  # false for what is no number, too
    if not (draft and possible and all(1 <= n <= MOST_ROWS for n in (*verify, *draft))):
        raise ValueError("costs are positive ratios to a plain step")
    return costs
