"""A real uvicorn server on a free port, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import replace

from specdec_cli.serve.http.guard import Door
from specdec_cli.serve.http.server import Server, listen
from specdec_cli.serve.http.service import Service


@contextmanager
def serving(model, desk, records=None, **door):
    """(base URL, service) of a server that listens; it ends with the block."""
    socket = listen("127.0.0.1", 0)
    port = socket.getsockname()[1]
    tell = (lambda record: None) if records is None else records.append
    service = Service(model, desk, replace(Door(port), **door), tell)
    started = threading.Event()
    server = Server(service, started.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([socket])), daemon=True)
    thread.start()
    try:
        assert started.wait(30)
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
