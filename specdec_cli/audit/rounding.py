"""What rounding explains, and what it does not (pure). Law: a near-tie's limit is measured, and what is measured is
bounded by something that a fault in several rows or in a rollback cannot move.

Three teacher-forced readings of the same positions (`engine.rounding`) give the lead of a token over its best rival:
one row a pass in the model's own type (mlx-lm), one row a pass with float32 activations (mlx-lm), and several rows a
pass (specdec, rollback included). From the first to the last is the *change*. The largest one is what a near-tie may
be: a token flips only where the change exceeds its lead.

A fault would be measured as well, so changes are bounded by the *float32 noise* r: the root mean square of own type
less float32, over all positions and rivals. Another reading in the own type that rounds as often and as finely differs
by 1.4 r if it is independent. Kernels for several rows may round twice as much (mlx stores the scores of unfused
attention, and dequantizes weights to 16 bits for matrix products): 2.2 r. So these are faults:

* a change above `PEAK` r, which is 4.5 × 2.2 r;
* a row of the pass whose changes have a root mean square above `SPREAD` r, or a mean above `BIAS` r: rounding has no
  direction, and the mean of `ENOUGH` changes strays by 0.3 r. This finds an error that is smaller than a peak of
  rounding, but always there;
* passes after rollbacks whose changes exceed, in the same measure, those of passes of as many rows without any: no r
  there but the root mean square of the latter, where it is less than r. `STEADY` r at least, for it may be 0.

r is believed up to `ROUNDINGS` epsilons of the largest logit. On the CPU it is about half an epsilon for 16-bit
weights, and two for 4-bit weights, whose products mlx sums up in 16 bits there (mlx/backend/cpu/quantized.cpp). A
float32 network has no wider type to be compared with: there `ROUNDINGS` epsilons bound a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_cli.audit.change import Group, SeveralRows, finite, root_mean_square

# The spacing of numbers at 1; TF32 keeps as many bits as float16.
EPSILONS: Mapping[str, float] = {"float32": 2.0**-23, "TF32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROUNDINGS = 4
# In logits: below this nothing is told apart.
LEAST = 1e-3
PEAK, SPREAD, BIAS = 10.0, 3.0, 1.5
STEADY = 0.25
# Fewer changes are no evidence of what is always there.
ENOUGH = 64


@dataclass(frozen=True, slots=True)
class Noise:
    """One row a pass in the model's own type, less the same in float32: `rms` and `largest`, in logits."""

    rms: float
    largest: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Noise | None:
        """None without any."""
        return cls(root_mean_square(errors), max(map(abs, errors))) if errors else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What float32 allows, in logits: for any change, and for the root mean square and the mean of a group."""

    peak: float
    rms: float
    mean: float

    @classmethod
    def of(cls, precision: str, noise: Noise | None, largest_logit: float) -> Bounds:
        most = ROUNDINGS * EPSILONS[precision] * largest_logit
        unit = max(LEAST / PEAK, most / PEAK if noise is None else min(noise.rms, most))
        return cls(PEAK * unit, SPREAD * unit, BIAS * unit)

    def like(self, group: Group) -> Bounds:
        """These bounds for changes that should be like those of `group`."""
        unit = self.rms / SPREAD
        if len(group.changes) < ENOUGH:
            return self
        unit = min(unit, max(group.rms, STEADY * unit))
        return Bounds(self.peak, SPREAD * unit, BIAS * unit)

    def allow(self, group: Group) -> bool:
        """Whether rounding explains what the changes of `group` have in common."""
        return len(group.changes) < ENOUGH or (group.rms <= self.rms and abs(group.mean) <= self.mean)


@dataclass(frozen=True, slots=True)
class Fault:
    """Changes in passes of `rows` rows that rounding does not explain: which ones, and what it does explain."""

    rows: int
    group: Group
    bounds: Bounds

    @classmethod
    def find(cls, passes: SeveralRows, bounds: Bounds) -> Fault | None:
        """The plainest description of what is above `bounds`; None where nothing is."""
        readings = passes.by_reading
        whole = readings.pop("whole")
        like = bounds.like(whole)
        rolled = [group for group in readings.values() if not like.allow(group)]
        if rolled and bounds.allow(whole) and abs(whole.largest.logits) <= bounds.peak:
            every = Group("after every rollback", _joined(rolled).changes)
            return cls(passes.rows, every if len(rolled) == len(readings) > 1 else _joined(rolled), like)
        wrong = [group for group in passes.by_row if not bounds.allow(group)]
        if not bounds.allow(passes.all) and len(wrong) in (0, passes.rows):
            return cls(passes.rows, passes.all, bounds)
        if wrong:
            return cls(passes.rows, _joined(wrong), bounds)
        peaks = [one for one in passes.changes if abs(one.logits) > bounds.peak]
        return cls(passes.rows, Group("here and there", peaks), bounds) if peaks else None

    def __str__(self) -> str:
        group, allowed = self.group, self.bounds
        size = abs(group.largest.logits)
        found = f"passes of {self.rows} rows, {group.name}: a gap changes by {size:.2g} ({group.largest})"
        most = f"{allowed.peak:.2g}, {allowed.rms:.2g} and {allowed.mean:.2g}"
        return f"{found}, rms {group.rms:.2g}, mean {group.mean:.2g}; rounding explains at most {most}"

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "where": self.group.name, "summary": str(self), **self.group.to_dict()}


def _joined(groups: Sequence[Group]) -> Group:
    return Group(", ".join(group.name for group in groups), [one for group in groups for one in group.changes])


@dataclass(frozen=True, slots=True)
class Rounding:
    """What was measured on `positions` tokens of plain decoding. `noise` is None without a float32 reading.

    `precision` is that of the network's products; `given` is --gap: a near-tie's limit, which bounds nothing else.
    """

    precision: str
    positions: int
    largest_logit: float
    noise: Noise | None
    passes: Sequence[SeveralRows]
    given: float | None = None

    @property
    def bounds(self) -> Bounds:
        return Bounds.of(self.precision, self.noise, self.largest_logit)

    @property
    def measured(self) -> float:
        """The largest change, in logits."""
        return max((abs(passes.all.largest.logits) for passes in self.passes), default=0.0)

    @property
    def faults(self) -> list[Fault]:
        return [fault for passes in self.passes if (fault := Fault.find(passes, self.bounds))]

    def limit(self, temperature: float = 0.0) -> float:
        """The largest gap of a near-tie, in scores: above temperature 0 they are logits ÷ temperature.

        The largest change of any pass that shows rounding alone; never above `bounds`.
        """
        if self.given is not None:
            return self.given
        faulty = {fault.rows for fault in self.faults}
        rounded = [abs(passes.all.largest.logits) for passes in self.passes if passes.rows not in faulty]
        return max([LEAST, *rounded]) / (temperature or 1.0)

    def __str__(self) -> str:
        if self.given is not None:
            return f"a gap of at most {self.given:g} (--gap)"
        limit, divided = self.limit(), "(÷ temperature where coupled)"
        if limit == LEAST:
            return f"a gap of at most {LEAST:g} {divided}"
        return f"a gap of at most {limit:.2g}, the largest change that rounding made here {divided}"

    def to_dict(self) -> dict[str, Any]:
        """Everything in logits. `float32_noise` is null where the network cannot be compared with float32."""
        bounds, noise = self.bounds, self.noise
        return {
            "positions": self.positions,
            "measured": finite(self.measured),
            "limit": self.limit(),
            "cap": bounds.peak,
            "cap_rms": bounds.rms,
            "cap_mean": bounds.mean,
            "float32_noise": noise and finite(noise.rms),
            "float32_noise_largest": noise and finite(noise.largest),
            "largest_logit": self.largest_logit,
            "passes": [passes.to_dict() for passes in self.passes],
            "faults": [fault.to_dict() for fault in self.faults],
        }
