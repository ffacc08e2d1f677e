"""A server in this process: its app alone, or a real uvicorn on a free port in a thread."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

from starlette.testclient import TestClient

from specdec_cli.apps.serve.http.access import AccessPolicy
from specdec_cli.apps.serve.http.app import make_app
from specdec_cli.apps.serve.http.server import Server, listen
from specdec_cli.apps.serve.http.service import Service

LOCAL = "http://127.0.0.1:8040"


@contextmanager
def local(model, desk, records=None, page=None, switch=None, **policy):
    """A client of the app without any socket; the server's names are those of port 8040."""
    tell = (lambda record: None) if records is None else records.append
    service = Service(model, desk, replace(AccessPolicy(8040), **policy), tell, page or {}, switch)
    app = make_app(service)
    yield TestClient(app, LOCAL, raise_server_exceptions=False)


@contextmanager
def serving(model, desk, records=None, page=None, switch=None, **policy):
    """(base URL, service) of a server that listens; it ends with the block."""
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    tell = (lambda record: None) if records is None else records.append
    service = Service(model, desk, replace(AccessPolicy(port), **policy), tell, page or {}, switch)
    started = threading.Event()
    server = Server(service, started.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    try:
        assert started.wait(30)
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def raw(url, data, seconds=5.0):
    """What comes back on a connection of one's own until it is closed, or for so long."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(data.replace(b"HOST", f"{host}:{port}".encode()))
        found = b""
        try:
            while part := connection.recv(65_536):
                found += part
        except TimeoutError:
            return found, False
    return found, True


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def posted(url, path, body):
    """A connection on which a request was sent."""
    host, port = url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
    return connection
