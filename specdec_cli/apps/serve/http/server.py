"""uvicorn around the app: the port is taken before any model is loaded, and the server's end ends its replies.

Connections of no use are closed: one that owes a request for too long, and the oldest such where too many come. uvicorn
has a deadline for the next request on a connection alone, and takes as many as come. What is open stays below the
process's limit of files, so that the loop can always take the next one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from specdec_cli.apps.serve.http.access import MOST_HEAD_BYTES
from specdec_cli.apps.serve.http.app import make_app
from specdec_cli.apps.serve.http.errors import HttpError
from specdec_cli.apps.serve.http.reply import error_response
from specdec_cli.apps.serve.http.service import Service
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.system import servers

# Connections that the system keeps for a loop that takes BURST at once.
BACKLOG = 1024
# Replies end at once; this is for whoever does not take the end of one.
ENDING_SECONDS = 1
# A program on this machine takes a connection at once.
CONNECT_SECONDS = 0.2
# A head comes at once; a body has some 32 MB at most, over a slow network.
HEAD_SECONDS, BODY_SECONDS, KEEP_ALIVE_SECONDS = 10.0, 60.0, 30
# Files that models, conversations and logs may need, and connections that were taken and not yet looked at. The loop
# takes BURST at once.
RESERVED_FILES, BURST = 128, 16
MOST_CONNECTIONS = 1024
FULL = "as many connections as are served are busy; try again later"
TOLD = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
LATE, CROWDED = TOLD.format("408 Request Timeout").encode(), TOLD.format("503 Service Unavailable").encode()


def listen(host: str, port: int, system: str = sys.platform) -> socket.socket:
    """A socket that listens there. Raises: SpecdecError for a port in use, UsageError for no address of ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Only of a socket that says it is TCP does asyncio know that its small writes must not wait for each other.
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {host} is not an address: {error.strerror}", "leave it out for 127.0.0.1") from error
    try:
        if system == "darwin" and _is_answered(address):  # it lets one address be bound beside all addresses
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise _refused(host, port, error) from error
    return found


def _is_answered(address: tuple[Any, ...]) -> bool:
    """Whether somebody on this machine listens there; where all addresses are meant, at the loopback's."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address[0], address[0])
    with suppress(OSError), socket.create_connection((name, address[1]), CONNECT_SECONDS):
        return True
    return False


def _refused(host: str, port: int, error: OSError) -> SpecdecError:
    if error.errno == errno.EADDRINUSE:
        other = f"use another: --port {port + 1}"
        for one in servers.running():
            if one.url.endswith(f":{port}"):
                return SpecdecError(f"{one.pair} is served at {one.url} already", f"see specdec ps; or {other}")
        return SpecdecError(f"port {port} of {host} is in use by another program", other)
    if error.errno == errno.EACCES:
        return UsageError(f"port {port} may not be opened by this user", "use one from 1024 on: --port 8040")
    return UsageError(
        f"--host {host} is not an address of this machine: {error.strerror}", "leave it out for 127.0.0.1"
    )


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


class Server(uvicorn.Server):
    """uvicorn, but the signal that ends it ends running replies at once."""

    def __init__(self, service: Service, started: Callable[[], None] = lambda: None) -> None:
        config = uvicorn.Config(
            make_app(service),
            http=Connections(),  # type: ignore[arg-type]  # called as a protocol class is
            backlog=BURST,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=ENDING_SECONDS,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        )
        super().__init__(config)
        # What happens is told to the operator in lines of our own; a traceback only to whoever asks for it.
        silent = os.environ.get("SPECDEC_DEBUG") != "1"
        for name in ("uvicorn", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1 if silent else logging.ERROR)
        self._service, self._told = service, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Says so once it listens."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # of which uvicorn made as few as the loop takes at once
        self._told()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Replies first: uvicorn waits for them."""
        self._service.leave()
        await super().shutdown(sockets)
