"""uvicorn's HTTP, with a limit to how slowly a connection's first head may come."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0


class Wire(H11Protocol):
    """A connection that is closed where its first head is not ended in time, or none is sent at all."""

    head_seconds = HEAD_SECONDS
    _deadline: asyncio.TimerHandle

    def connection_made(self, transport: Any) -> None:
        """The first head is due."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.head_seconds, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        super().connection_lost(exc)
        self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """A head that goes on does not get more time for it."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._deadline.cancel()
