"""uvicorn around the app: the port is taken before any model is loaded, and the server's end ends its replies."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable

import uvicorn

from specdec_cli.apps.serve.http.access import MOST_HEAD_BYTES
from specdec_cli.apps.serve.http.app import make_app
from specdec_cli.apps.serve.http.connections import BURST, KEEP_ALIVE_SECONDS, Connections
from specdec_cli.apps.serve.http.service import Service
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.system import servers

# Connections that the system keeps for a loop that takes BURST at once.
BACKLOG = 1024
# Replies end at once; this is for whoever does not take the end of one.
ENDING_SECONDS = 1


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises: SpecdecError for a port in use, UsageError for no address of ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Only of a socket that says it is TCP does asyncio know that its small writes must not wait for each other.
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {host} is not an address: {error.strerror}", "leave it out for 127.0.0.1") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise _refused(host, port, error) from error
    return found


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
