"""What mlx holds in memory, and what the device says of itself. Law: it asks, and limits nothing."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes in arrays that are alive, in freed buffers that are kept, and the most that was alive at once."""

    active_bytes: int
    cache_bytes: int
    peak_bytes: int


def memory_use() -> MemoryUse:
    return MemoryUse(mx.get_active_memory(), mx.get_cache_memory(), mx.get_peak_memory())


def free_cached_memory() -> None:
    """Give freed buffers back to the system."""
    mx.clear_cache()


def device_info() -> dict[str, str | int]:
    """The default device's own facts: on Metal its architecture, memory and limits; less elsewhere."""
    return dict(mx.device_info())
