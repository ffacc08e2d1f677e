"""The port: taken before any model, refused in words, quick for small answers; deadlines and a bound on connections."""

import json
import socket
import time
from contextlib import ExitStack, suppress
from threading import Event

import httpx
import pytest

from fakes.server import opened, posted, serving, until
from fakes.servers import plant
from specdec_cli.apps.serve.http import server
from specdec_cli.apps.serve.http.server import listen
from specdec_cli.core.errors import SpecdecError, UsageError

pytestmark = pytest.mark.slow  # a server that listens
CHAT = "/v1/chat/completions"
ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF_BODY = POST + b"Content-Length: 900\r\n\r\n{"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{"


def test_small_writes_do_not_wait_for_each_other():
    """asyncio switches Nagle's delay off only for sockets that say they are TCP; each answer once took 40 ms more."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_port_that_specdec_itself_has_is_told_with_what_is_served_there():
    """It was "another program"."""
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with plant(port=port), pytest.raises(SpecdecError) as refused:
            listen("127.0.0.1", port)
        assert refused.value.message == f"tiny is served at http://127.0.0.1:{port} already"
        assert refused.value.hint == f"see specdec ps; or use another: --port {port + 1}"
        with plant(port=port + 1), pytest.raises(SpecdecError, match="by another program") as refused:
            listen("127.0.0.1", port)
        said = (f"port {port} of 127.0.0.1 is in use by another program", f"use another: --port {port + 1}")
        assert (refused.value.message, refused.value.hint, refused.value.exit_code) == (*said, 1)


@pytest.mark.parametrize(("theirs", "ours"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")])
def test_a_port_that_macos_gives_twice_is_in_use(monkeypatch, theirs, ours):
    """There one address can be bound beside all of them: whoever asked Ollama at its port was answered by specdec."""
    monkeypatch.setattr(socket, "SO_REUSEADDR", socket.SO_REUSEPORT)  # by which Linux gives it twice
    with listen(theirs, 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(SpecdecError, match=f"port {port} of {ours} is in use by another program"):
            listen(ours, port, "darwin")
        with plant(port=port), pytest.raises(SpecdecError, match=f"tiny is served at .*:{port} already"):
            listen(ours, port, "darwin")
        listen(ours, port, "linux").close()
    listen(ours, port, "darwin").close()


@pytest.mark.parametrize("host", ["no.such.invalid", "192.0.2.1"])
def test_an_address_that_is_not_this_machine_s_is_a_usage_error(host):
    with pytest.raises(UsageError, match=f"--host {host} is not an address"):
        listen(host, 0)


@pytest.fixture
def served(scripted, monkeypatch):
    """(url, what lets answers go on, records); its deadlines are short, and it has eight connections."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(server, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 8)
    go, records = Event(), []
    go.set()
    url, _ = scripted(between=lambda handle: go.wait(20), records=records, how=serving)
    yield url, go, records
    go.set()


def rest(connection, drip=b""):
    """(what is still said, seconds until it is closed); it goes on sending `drip`."""
    began, said, part = time.monotonic(), b"", b"."
    connection.settimeout(0.1)
    with connection, suppress(OSError):
        while part and time.monotonic() < began + 15:
            try:
                said += (part := connection.recv(4096))
            except TimeoutError:
                connection.sendall(drip)
    return said, time.monotonic() - began


@pytest.mark.parametrize("drip", [b"", b"x"])
@pytest.mark.parametrize(
    "data",
    [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nX: ", HALF_BODY, CHUNKED],
    ids=["silent", "head", "line", "body", "chunks"],
)
def test_a_client_that_owes_a_request_is_told_and_closed_in_time(served, data, drip):
    """The bug: 200 silent connections and 50 half bodies were open after 75 s. Letter by letter is no way around."""
    said, seconds = rest(opened(served[0], data), drip if data else b"")
    assert said.startswith(b"HTTP/1.1 408 ") and 0.3 < seconds < 10
    assert httpx.get(served[0] + "/health").status_code == 200 and not served[2][1:]


def test_whoever_asks_is_let_in_though_silent_connections_come_without_end(served):
    with ExitStack() as stack:
        silent = [stack.enter_context(opened(served[0])) for _ in range(30)]
        assert httpx.get(served[0] + "/health", timeout=5).status_code == 200
        assert silent[0].recv(100).startswith(b"HTTP/1.1 503 ")


def test_where_all_are_busy_one_more_is_told_so_in_the_shape_of_its_dialect(served):
    """Answers that run are never ended for those that come, and places are free again after them."""
    url, go, _ = served
    go.clear()
    busy = [posted(url, CHAT, {**ASKED, "stream": True}) for _ in range(8)]
    time.sleep(0.3)
    refused = httpx.post(url + "/v1/messages", json=ASKED, timeout=10)
    assert refused.status_code == 503 and refused.json()["error"]["type"] == "overloaded_error"
    assert refused.headers["retry-after"] and httpx.get(url + "/health").status_code == 503
    go.set()
    for connection in busy:
        said = b""
        while b"[DONE]" not in said:
            said += connection.recv(4096)
        connection.close()
    until(lambda: httpx.get(url + "/health").status_code == 200)


def test_slow_answers_and_slow_bodies_within_their_time_are_served(served):
    """Negative control: neither deadline is for the server's own time, nor for whoever comes back on a connection."""
    url, go, _ = served
    with httpx.Client(base_url=url) as client:
        assert client.get("/health").status_code == 200
        time.sleep(0.8)
        go.clear()
        with posted(url, CHAT, ASKED) as connection:
            time.sleep(1.5)
            go.set()
            assert b"200 OK" in connection.recv(4096)
        assert client.get("/health").status_code == 200
    body = json.dumps(ASKED).encode()
    with opened(url, POST + b"Content-Length: %d\r\n\r\n" % len(body)) as connection:
        for half in (body[:9], body[9:]):
            time.sleep(0.3)
            connection.sendall(half)
        assert b"200 OK" in connection.recv(4096)
