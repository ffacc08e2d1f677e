"""The memory of a Mac as mlx keeps it, in numbers only: buffers in use, the cache of freed ones, and what is wired.

After mlx/backend/metal/allocator.cpp, mlx/backend/common/buffer_cache.h and mlx/backend/metal/resident.cpp: sizes are
whole pages; a freed buffer goes to the cache while that is below its limit, is used again for a size less than two
pages smaller, and stays in a residency set until it leaves the cache; a buffer for which the wired limit has no room is
allocated all the same.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import count

import mlx.core as mx

from specdec_cli.engine import device

PAGE = 16_384
GIGABYTE = 1 << 30


class FakeMemory:
    """`malloc` and `free` take the place of mlx's; its limits are set through mlx's own names once `install`ed."""

    def __init__(self, recommended: int = 12 * GIGABYTE) -> None:
        self.recommended = recommended
        self.cache_limit = int(1.5 * recommended)
        self.memory_limit = int(1.5 * recommended)
        self.wired_limit = 0
        self.wired_limits: list[int] = []  # that were set
        self.sizes: dict[int, int] = {}
        self.used: set[int] = set()
        self.resident: set[int] = set()
        self.active = self.in_cache = self.wired = 0
        self.most_cached = self.most_wired = self.synchronized = 0
        self._cached: dict[int, None] = {}  # in the order of freeing
        self._by_size: list[tuple[int, int]] = []
        self._numbers = count()

    def install(self, monkeypatch) -> FakeMemory:
        """In the place of mlx's memory, on a device that calls itself Metal."""
        monkeypatch.setattr(device, "backend", lambda: "metal")
        monkeypatch.setattr(device, "working_set_bytes", lambda: self.recommended)
        monkeypatch.setattr(mx, "clear_cache", self.clear_cache)
        monkeypatch.setattr(mx, "synchronize", self.synchronize)
        monkeypatch.setattr(mx, "get_active_memory", lambda: self.active)
        monkeypatch.setattr(mx, "get_cache_memory", lambda: self.in_cache)
        monkeypatch.setattr(mx, "set_cache_limit", lambda limit: self._set("cache_limit", limit))
        monkeypatch.setattr(mx, "set_memory_limit", lambda limit: self._set("memory_limit", limit))
        monkeypatch.setattr(mx, "set_wired_limit", self.set_wired_limit)
        return self

    def malloc(self, size: int) -> int:
        """The number of a buffer of `size` bytes."""
        if size > PAGE:
            size = -(-size // PAGE) * PAGE
        number = self._from_cache(size)
        if number is None:
            required = self.active + self.in_cache + size
            if required >= 0.95 * self.recommended:
                self._release(required - int(0.95 * self.recommended))
            number = next(self._numbers)
            self.sizes[number] = size
            self._wire(number)
        self.used.add(number)
        self.active += self.sizes[number]
        self._release(self.in_cache - self.cache_limit)
        return number

    def free(self, number: int) -> None:
        self.used.remove(number)
        self.active -= self.sizes[number]
        if self.in_cache < self.cache_limit:
            self._cached[number] = None
            insort(self._by_size, (self.sizes[number], number))
            self.in_cache += self.sizes[number]
            self.most_cached = max(self.most_cached, self.in_cache)
        else:
            self._unwire(number)
            del self.sizes[number]

    def clear_cache(self) -> None:
        self._release(self.in_cache)

    def set_wired_limit(self, limit: int) -> int:
        if limit > self.recommended:
            raise ValueError("[metal::set_wired_limit] Setting a wired limit larger than the maximum working set size")
        self.wired_limits.append(limit)
        before = self._set("wired_limit", limit)
        for number in self.sizes:
            if self.wired > limit:
                self._unwire(number)
            else:
                self._wire(number)
        return before

    def synchronize(self, *_) -> None:
        self.synchronized += 1

    def _wire(self, number: int) -> None:
        if number not in self.resident and self.wired + self.sizes[number] <= self.wired_limit:
            self.resident.add(number)
            self.wired += self.sizes[number]
            self.most_wired = max(self.most_wired, self.wired)

    def _unwire(self, number: int) -> None:
        if number in self.resident:
            self.resident.remove(number)
            self.wired -= self.sizes[number]

    def _from_cache(self, size: int) -> int | None:
        at = bisect_left(self._by_size, (size, 0))
        if at == len(self._by_size) or self._by_size[at][0] >= min(2 * size, size + 2 * PAGE):
            return None
        found, number = self._by_size.pop(at)
        del self._cached[number]
        self.in_cache -= found
        return number

    def _release(self, at_least: int) -> None:
        """The buffers freed first go first."""
        while at_least > 0 and self._cached:
            number = next(iter(self._cached))
            del self._cached[number]
            size = self.sizes[number]
            self._by_size.remove((size, number))
            at_least -= size
            self.in_cache -= size
            self._unwire(number)
            del self.sizes[number]

    def _set(self, name: str, value: int) -> int:
        before = getattr(self, name)
        setattr(self, name, value)
        return before


class MeteredModel:
    """The memory of a model: weights, KV caches of `layers` layers that grow by 256 tokens, and each pass's own."""

    def __init__(self, memory: FakeMemory, weights: int, layers: int, row_bytes: int, heads: int) -> None:
        """`row_bytes` is one token's keys of one layer; `heads` those whose scores are not fused."""
        self.memory, self.layers, self.row_bytes, self.heads = memory, layers, row_bytes, heads
        self.weights = [memory.malloc(weights // layers) for _ in range(layers)]
        self.kv: list[int] = []
        self.rows = 0

    def run(self, tokens: int, context: int) -> None:
        """A pass over `tokens`, after which the caches hold `context`."""
        rows = -(-context // 256) * 256
        if rows != self.rows:
            before, self.rows = self.kv, rows
            self.kv = [self.memory.malloc(rows * self.row_bytes) for _ in range(2 * self.layers)]
            for buffer in before:
                self.memory.free(buffer)
        for size in (self.heads * tokens * context * 2, tokens * self.row_bytes * 8):
            self.memory.free(self.memory.malloc(size))

    def unload(self) -> None:
        for buffer in [*self.weights, *self.kv]:
            self.memory.free(buffer)
        self.weights, self.kv, self.rows = [], [], 0

    def watch(self, model) -> None:
        """Every pass of `model`, a CachedModel, is a pass of this one."""
        forward = model.network.forward

        def metered(tokens, caches):
            output = forward(tokens, caches)
            self.run(int(tokens.size), caches.length)
            return output

        model.network.forward = metered
