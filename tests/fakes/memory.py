"""A device that calls itself Metal, in numbers only: what is asked of its memory, in order."""

from __future__ import annotations

import mlx.core as mx

from specdec_cli.engine import device

GIGABYTE = 1 << 30


class FakeMemory:
    """`asked` are the calls that change what is wired or kept; `wired_limits` the limits among them.

    mlx wires what is in memory when a limit is set, and then what comes while there is room (mlx/backend/metal/
    resident.cpp): so nothing else may be there, and no evaluation under way.
    """

    def __init__(self, recommended: int = 12 * GIGABYTE) -> None:
        self.recommended = recommended
        self.asked: list[str | int] = []

    def install(self, monkeypatch) -> FakeMemory:
        """In the place of mlx's memory."""
        monkeypatch.setattr(device, "backend", lambda: "metal")
        monkeypatch.setattr(device, "working_set_bytes", lambda: self.recommended)
        monkeypatch.setattr(mx, "clear_cache", lambda: self.asked.append("clear"))
        monkeypatch.setattr(mx, "synchronize", lambda *_: self.asked.append("settle"))
        monkeypatch.setattr(mx, "set_wired_limit", self.asked.append)
        return self

    @property
    def wired_limits(self) -> list[int]:
        return [limit for limit in self.asked if isinstance(limit, int)]

    @property
    def wired_limit(self) -> int:
        return self.wired_limits[-1] if self.wired_limits else 0
