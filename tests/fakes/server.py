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


def service_of(model, desk, records, switch, port=8040, **policy):
    tell = (lambda record: None) if records is None else records.append
    return Service(model, desk, replace(AccessPolicy(port), **policy), tell, switch)


@contextmanager
def local(model, desk, records=None, switch=None, **policy):
    """A client of the app without any socket; the server's names are those of port 8040."""
    app = make_app(service_of(model, desk, records, switch, **policy))
    yield TestClient(app, LOCAL, raise_server_exceptions=False)


@contextmanager
def serving(model, desk, records=None, switch=None, **policy):
    """(base URL, service) of a server that listens; it ends with the block."""
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    service = service_of(model, desk, records, switch, port, **policy)
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


def opened(url, data=b""):
    """A connection on which `data` was sent; HOST in it stands for the server's."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(data.replace(b"HOST", f"{host}:{port}".encode()))
    return connection


def received(connection, seconds=10.0):
    """(all that comes, whether it ended with the connection) within so many seconds of silence."""
    connection.settimeout(seconds)
    found = b""
    with connection:
        try:
            while part := connection.recv(65_536):
                found += part
        except TimeoutError:
            return found, False
    return found, True


def posted(url, path, body):
    """A connection on which a request was sent."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"
    return opened(url, head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
