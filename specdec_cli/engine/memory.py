"""Memory that mlx keeps: its cache of freed buffers, and what macOS may not page out.

Freed buffers are bounded and given back; memory is wired for what decodes, and only while it may decode.
mlx keeps freed buffers for later allocations of nearly the same size (mlx/backend/common/buffer_cache.h: less than two
pages more). A KV cache that grew never fits again, so freed ones pile up. On Metal they stay wired, up to 95 % of the
recommended working set (mlx/backend/metal/allocator.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from specdec_cli.engine import device

# Enough for the buffers of a pass, which are freed and needed again; the rest is of sizes that do not come back.
MOST_CACHED_BYTES = 1 << 30
CACHED_SHARE = 0.05
# As mlx-lm does (generate.py, generate_step).
EMITTED_TOKENS = 256
# Two chunks of a prompt on Metal; what they free is mostly needed by the next one.
READ_TOKENS = 4096
# Over weights and caches: activations, the buffer cache, and what the estimate does not know of.
HEADROOM_BYTES = 2 << 30
# Wired memory is estimated for a context rounded up to so many tokens: one estimate serves many replies.
STEP_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes in arrays that are alive, in freed buffers that are kept, and the most that was alive at once."""

    active_bytes: int
    cache_bytes: int
    peak_bytes: int


def memory_use() -> MemoryUse:
    """What mlx holds now; the peak is that since `device.reset_peak_memory`."""
    return MemoryUse(device.active_memory_bytes(), mx.get_cache_memory(), device.peak_memory_bytes())


def bound_memory() -> None:
    """On Metal: bound the cache of freed buffers. Nothing elsewhere.

    `mx.set_cache_limit` holds from the next allocation on. `mx.set_memory_limit` stays mlx's own: above it nothing
    fails, but every command buffer is waited for (mlx/backend/metal/eval.cpp), which frees no array that is alive. mlx
    on a CPU keeps 32 MB at most (mlx/backend/no_gpu/allocator.cpp).
    """
    recommended = device.working_set_bytes()
    if device.backend() == "metal" and recommended:
        mx.set_cache_limit(min(MOST_CACHED_BYTES, int(recommended * CACHED_SHARE)))


def clear_cache() -> None:
    """Give all freed buffers back to the system; on Metal they are no longer wired."""
    mx.clear_cache()


class FreedBuffers:
    """The buffers freed by one reply's rounds, or by the chunks of its prompt: given back every `every` tokens.

    On a CPU they are kept: 32 MB at most, and clearing would wait for the queue (mlx/backend/no_gpu/allocator.cpp).
    """

    def __init__(self, every: int) -> None:
        self._every, self._tokens = every, 0

    def count(self, tokens: int) -> None:
        """One round emitted, or one chunk had, so many `tokens`."""
        self._tokens += tokens
        if self._tokens >= self._every:
            self.give_back()

    def give_back(self) -> None:
        """Unless nothing was counted since the last time."""
        if self._tokens and device.backend() != "cpu":
            clear_cache()
        self._tokens = 0


class Residency:
    """Which part of the memory in use macOS may not page out: as much as a pair needs. On Metal only.

    `mx.set_wired_limit` bounds the buffers that mlx puts into Metal's residency sets; larger use still works, but may
    be paged out. macOS 14 has no residency sets, and the call does nothing there (mlx/backend/metal/resident.cpp).
    """

    def __init__(self, estimate: Callable[[int], int] = lambda context_tokens: 0) -> None:
        """`estimate`: bytes of weights and caches at a context of so many tokens; without one what is in use counts."""
        self._estimate = estimate
        self._needed_bytes: dict[int, int] = {}

    def hold(self, context_tokens: int) -> None:
        """Wire weights, caches of `context_tokens` and headroom, at most the recommended working set."""
        recommended = device.working_set_bytes()
        if device.backend() != "metal" or not recommended:
            return
        tokens = -(-context_tokens // STEP_TOKENS) * STEP_TOKENS
        if tokens not in self._needed_bytes:
            self._needed_bytes[tokens] = self._estimate(tokens)
        # Another pair may be loaded beside this one.
        used = max(self._needed_bytes[tokens], device.active_memory_bytes())
        mx.set_wired_limit(min(used + HEADROOM_BYTES, recommended))

    def release(self) -> None:
        """Wire nothing; the buffers stay, and macOS may page them out. Waits for passes in flight first.

        mlx-lm asks for that: no wired limit is to change during an evaluation (generate.py, wired_limit).
        """
        if device.backend() == "metal":
            device.settle()
            clear_cache()
            mx.set_wired_limit(0)
