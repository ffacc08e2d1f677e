"""How a desk works (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeskOptions:
    """`parallel` jobs run at once and `queue` more wait. `slots` conversations are kept in `cache_bytes`.

    `cache_bytes` None is half of what the weights leave of the usable memory. After `idle_seconds` without a job the
    models are dropped; None keeps them. `usable_bytes` None is what the device says.
    """

    parallel: int = 2
    queue: int = 16
    slots: int = 16
    cache_bytes: int | None = None
    idle_seconds: float | None = 600.0
    usable_bytes: int | None = None
