"""Connections of no use are closed: one that owes a request for too long, and the oldest such where too many come.

uvicorn has a deadline for the next request on a connection alone, and takes as many as come. What is open stays below
the process's limit of files, so that the loop can always take the next one.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from specdec_cli.apps.serve.http.errors import HttpError
from specdec_cli.apps.serve.http.reply import error_response

# A head comes at once; a body has some 32 MB at most, over a slow network.
HEAD_SECONDS, BODY_SECONDS, KEEP_ALIVE_SECONDS = 10.0, 60.0, 30
# Files that models, conversations and logs may need, and connections that were taken and not yet looked at. The loop
# takes BURST at once.
RESERVED_FILES, BURST = 128, 16
MOST_CONNECTIONS = 1024
FULL = "as many connections as are served are busy; try again later"
TOLD = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
LATE, CROWDED = TOLD.format("408 Request Timeout").encode(), TOLD.format("503 Service Unavailable").encode()


def most_connections() -> int:
    """How many may be open at once."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files < 0 else min(max(files - RESERVED_FILES, BURST), MOST_CONNECTIONS)


@dataclass(slots=True)
class Connections:
    """Makes the connections of one server, `most` at once; `owing` are those of which a request is awaited, in order of
    their coming."""

    most: int = field(default_factory=most_connections)
    owing: dict[TimedConnection, None] = field(default_factory=dict)

    def __call__(self, **given: Any) -> TimedConnection:
        """A connection, as uvicorn asks for one."""
        return TimedConnection(self, **given)


class TimedConnection(H11Protocol):
    """A connection whose client must not owe a head or a body for long."""

    def __init__(self, pool: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._pool, self._owes = pool, ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn has a TCP server
        """The one that has owed for longest makes room; if none does, this one's requests are refused."""
        super().connection_made(transport)
        if len(self.connections) > self._pool.most:
            if oldest := next(iter(self._pool.owing), None):
                oldest.end(CROWDED)
            else:
                self.app = _full
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._expect("", 0.0)

    def end(self, told: bytes) -> None:
        """Close it; whoever sent half a request is told why."""
        if not self.transport.is_closing():
            began = self.cycle is None or (self._owes == "body" and not self.cycle.response_started)
            self.transport.write(told if began else b"")
            self.transport.close()
        self._expect("", 0.0)

    def _look(self) -> None:
        """What the client owes now: a head, a body, or nothing while it waits itself."""
        if self.transport.is_closing():
            self._expect("", 0.0)
        elif self.cycle is None:
            self._expect("head", HEAD_SECONDS)
        elif self.cycle.response_complete:
            self._expect("next", KEEP_ALIVE_SECONDS)
        else:
            self._expect("body" if self.cycle.more_body else "", BODY_SECONDS)

    def _expect(self, owes: str, seconds: float) -> None:
        if owes == self._owes:
            return
        self._owes = owes
        self._pool.owing.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.end, LATE) if owes else None
        if owes:
            self._pool.owing[self] = None


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    error = HttpError(503, FULL, code="busy", headers={"Retry-After": "5"})
    await error_response(scope["path"], error, closing=True)(scope, receive, send)
