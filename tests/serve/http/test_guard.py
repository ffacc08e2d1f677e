"""Who is not let in, and in which words: foreign hosts and pages, forms, large and slow bodies."""

import json
import socket
import time

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import raw, serving
from specdec_cli.serve.http.server import HttpProtocol

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
PATHS = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic", "/tokenize": "llama"}


@pytest.fixture
def door(tooled):
    """Starts a server with such a door; its model says `ok` for ever."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(**more):
            desk = ScriptedDesk(["ok"] * 50)
            stack.callback(desk.close)
            url, _ = stack.enter_context(serving(tooled, desk, **more))
            return url

        yield start


def shape_of(body):
    """Whose error it is."""
    if body.get("type") == "error":
        assert set(body["error"]) == {"type", "message"}
        return "anthropic"
    if isinstance(body["error"].get("code"), int):
        return "llama"
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return "openai"


@pytest.mark.parametrize("path, dialect", PATHS.items())
@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "localhost", "127.0.0.1:1", "", "[::1"])
def test_a_foreign_host_is_refused_before_anything_else(door, path, dialect, host):
    url = door()
    host = host.format(port=url.rpartition(":")[2])
    refused = httpx.post(url + path, json=ASKED, headers={"Host": host})
    assert (refused.status_code, shape_of(refused.json())) == (403, dialect)


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_the_names_of_this_machine_are_let_in(door, name):
    url = door()
    assert httpx.get(f"{url}/health", headers={"Host": f"{name}:{url.rpartition(':')[2]}"}).status_code == 200


def test_a_page_from_elsewhere_is_refused_unless_it_was_named(door):
    ours = "http://localhost:3000"
    url = door(origins=(ours,))
    for origin in ("https://evil.example", "null", "http://localhost:3001", "file://"):
        refused = httpx.post(f"{url}/v1/chat/completions", json=ASKED, headers={"Origin": origin})
        assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        assert httpx.options(f"{url}/v1/chat/completions", headers=asked).status_code == 403
    let_in = httpx.post(f"{url}/v1/chat/completions", json=ASKED, headers={"Origin": ours})
    sent = "authorization, content-type, x-stainless-lang"  # what OpenAI's SDK sends in a browser
    asked = {"Origin": ours, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": sent}
    preflight = httpx.options(f"{url}/v1/chat/completions", headers=asked)
    assert preflight.headers["access-control-allow-headers"] == sent
    assert httpx.get(f"{url}/nothing", headers={"Origin": ours}).headers["access-control-allow-origin"] == ours
    assert let_in.headers["access-control-allow-origin"] == preflight.headers["access-control-allow-origin"] == ours
    assert (let_in.status_code, preflight.status_code) == (200, 200)


def test_nothing_is_said_to_pages_unasked(door):
    url = door()
    same = httpx.post(f"{url}/v1/chat/completions", json=ASKED, headers={"Origin": url})
    assert same.status_code == 200
    assert not [name for name in same.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "", "application/jsonp"],
)
def test_what_a_form_can_send_is_refused(door, kind):
    refused = httpx.post(door() + "/v1/messages", content=json.dumps(ASKED), headers={"Content-Type": kind})
    assert (refused.status_code, shape_of(refused.json())) == (415, "anthropic")


def test_with_a_key_nothing_but_its_health_is_told_without(door):
    url = door(host="0.0.0.0", key="secret")
    wrong = [
        {},
        {"Authorization": "Bearer secre"},
        {"x-api-key": "secrets"},
        {"Authorization": "Basic secret"},
        {"Authorization": "Bearersecret"},
    ]
    wrong.append({"x-api-key": b"\xff\xfe"})
    for headers in wrong:
        refused = httpx.get(f"{url}/v1/models", headers=headers)
        assert refused.status_code == 401 or headers == {"x-api-key": "secrets"}, headers
    for headers in ({"Authorization": "Bearer secret"}, {"Authorization": "bearer secret"}, {"x-api-key": "secret"}):
        assert httpx.get(f"{url}/v1/models", headers=headers).status_code == 200
    assert httpx.get(f"{url}/health").status_code == 200


def test_an_open_interface_is_reached_by_its_address_but_by_no_other_name(door):
    url = door(host="0.0.0.0", key="secret")
    port = url.rpartition(":")[2]
    assert httpx.get(f"{url}/health", headers={"Host": f"192.168.1.9:{port}"}).status_code == 200
    assert httpx.get(f"{url}/health", headers={"Host": f"evil.example:{port}"}).status_code == 403


def test_a_name_that_was_allowed_is_let_in_at_its_port_or_at_any(door):
    """With the key there was still no way in by a .local name, through a proxy or a forwarded port."""
    url = door(host="0.0.0.0", key="secret", hosts=("mac-studio.local", "box.example:9999", "127.0.0.1:9999"))
    port = url.rpartition(":")[2]
    found = {}
    for host in ("MAC-studio.local", f"mac-studio.local:{port}", "mac-studio.local:1", "box.example:9999"):
        found[host] = httpx.get(f"{url}/health", headers={"Host": host}).status_code
    found["forwarded"] = httpx.get(f"{url}/health", headers={"Host": "127.0.0.1:9999"}).status_code
    assert set(found.values()) == {200}, found
    for host in ("box.example", f"box.example:{port}", "evil.example", "x.mac-studio.local", "127.0.0.1:1", ""):
        assert httpx.get(f"{url}/health", headers={"Host": host}).status_code == 403, host
    page = {"Host": "mac-studio.local", "Origin": "https://mac-studio.local", "x-api-key": "secret"}
    assert httpx.post(f"{url}/v1/chat/completions", json=ASKED, headers=page).status_code == 200
    page["Origin"] = "https://evil.example"
    assert httpx.post(f"{url}/v1/chat/completions", json=ASKED, headers=page).status_code == 403


def test_a_head_that_is_too_long_is_refused_whole_or_not(door):
    """One that came whole was read at any length: only what was not ended yet was counted."""
    refused = httpx.get(f"{door()}/health", headers={"X": "x" * 70_000})
    assert refused.status_code == 431 and "65536" in refused.json()["error"]["message"]
    assert httpx.get(f"{door()}/health", headers={"X": "x" * 60_000}).status_code == 200


def test_a_body_of_two_lengths_is_refused(door):
    """The chunks won, and a proxy before it may believe the length: they would differ on where the next one begins."""
    body = json.dumps(ASKED).encode()
    head = b"POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nConnection: close\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(body)
    answer, closed = raw(door(), head + both + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert closed and answer.startswith(b"HTTP/1.1 400") and b"Content-Length" in answer


def test_a_body_that_is_too_large_is_refused_announced_or_not(door):
    url = door(most_body_bytes=1000)
    text = json.dumps({**ASKED, "user": "x" * 3000})
    headers = {"Content-Type": "application/json"}
    announced = httpx.post(f"{url}/v1/chat/completions", content=text, headers=headers)
    in_chunks = httpx.post(f"{url}/v1/chat/completions", content=iter([text.encode()]), headers=headers)
    for refused in (announced, in_chunks):
        assert refused.status_code == 413 and "1000" in refused.json()["error"]["message"]


def test_chunked_bodies_are_read(door):
    parts = [json.dumps(ASKED)[at : at + 7].encode() for at in range(0, 200, 7)]
    headers = {"Content-Type": "application/json"}
    assert httpx.post(door() + "/v1/chat/completions", content=iter(parts), headers=headers).status_code == 200


def test_a_body_that_never_ends_is_given_up(door):
    head = b"POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    answer, closed = raw(door(body_seconds=0.3), head)
    assert closed and answer.startswith(b"HTTP/1.1 408") and b'"type":"error"' in answer


@pytest.mark.parametrize("begun", [b"", b"GET /health HTT", b"GET /health HTTP/1.1\r\nHost: HOST\r\nX: 1\r\n"])
def test_a_head_that_never_ends_is_given_up(door, monkeypatch, begun):
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.3)
    assert raw(door(), begun) == (b"", True)


def test_a_head_that_comes_in_drops_gets_no_more_time_for_it(door, monkeypatch):
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.5)
    host, port = door().removeprefix("http://").split(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=5) as connection, pytest.raises(OSError):
        while time.monotonic() - began < 5:
            connection.sendall(b"X")
            time.sleep(0.05)
    assert time.monotonic() - began < 4


def test_what_is_no_http_is_answered_and_closed(door):
    answer, closed = raw(door(), b"\x16\x03\x01 hello\r\n\r\n")
    assert closed and answer.startswith(b"HTTP/1.1 400")


def test_requests_in_a_row_on_one_connection_are_answered_in_order(door):
    body = json.dumps(ASKED).encode()
    one = b"POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"
    one += b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = b"GET /health HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
    answer, closed = raw(door(), one * 3 + last)
    assert closed and answer.count(b"HTTP/1.1 200") == 4
    assert answer.rindex(b"chat.completion") < answer.index(b'"status":"ok"')


@pytest.mark.parametrize("path, dialect", PATHS.items())
def test_an_address_or_method_that_is_not_taken_is_an_error_of_the_dialect(door, path, dialect):
    url = door()
    assert shape_of(httpx.get(url + path).json()) == dialect and httpx.get(url + path).status_code == 405
    assert httpx.get(f"{url}/v1/nothing").status_code == 404
