"""A client that leaves ends its job, whatever that is doing; a queue that is full says when to come back."""

import json
import threading
import time

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import posted, serving, until
from specdec_cli.apps.serve.http import reply
from specdec_cli.apps.serve.job import Busy, TooLarge, TooLong
from specdec_cli.core.errors import SpecdecError

pytestmark = pytest.mark.slow  # a server that listens

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")


@pytest.mark.parametrize("path", [*PATHS[:2], PATHS[3]])
@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_during_an_answer_ends_it(tooled, path, stream):
    desk = ScriptedDesk(["word " * 100_000], steps=str.split, between=lambda ticket: time.sleep(0.002))
    records = []
    with serving(tooled, desk, records) as (url, service):
        connection = posted(url, path, {**ASKED, "stream": stream})
        until(lambda: desk.passes > 3)
        connection.close()
        until(lambda: desk.jobs[0].cancelled and desk.running is None)
        until(lambda: records)
        assert [record.status for record in records] == [499] and not service.open
        after = desk.passes
        time.sleep(0.05)
        assert desk.passes == after < 3000
    desk.close()


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_while_the_prompt_is_read_or_waits_ends_that(tooled, stream):
    reading = threading.Event()

    def read(ticket):
        reading.set()
        until(lambda: ticket.cancelled, 20)

    desk = ScriptedDesk(["a", "b"], between=read)
    with serving(tooled, desk) as (url, service):
        first = posted(url, PATHS[0], {**ASKED, "stream": stream})
        assert reading.wait(10)
        second = posted(url, PATHS[1], {**ASKED, "stream": stream})
        until(lambda: len(desk.jobs) == 2)
        health = httpx.get(f"{url}/health").json()
        assert (health["running"], health["queue"]) == (1, [{"position": 1, "endpoint": "messages"}])
        second.close()
        until(lambda: desk.jobs[1].cancelled)
        assert not desk.jobs[0].cancelled
        first.close()
        until(lambda: desk.jobs[0].cancelled)
        until(lambda: not service.open)
    desk.close()


@pytest.mark.parametrize("path, sign", [(PATHS[0], b": still reading\n\n"), (PATHS[1], b"event: ping\n")])
def test_a_stream_gives_signs_of_life_while_the_prompt_is_read(tooled, monkeypatch, path, sign):
    monkeypatch.setattr(reply.ReplyResponse, "silence_seconds", 0.1)
    desk = ScriptedDesk(["a"], between=lambda ticket: time.sleep(0.6))
    with serving(tooled, desk) as (url, _):
        said = httpx.post(url + path, json={**ASKED, "stream": True}, timeout=20).content
    desk.close()
    assert said.count(sign) >= 2


def test_a_stream_gives_signs_of_life_while_much_happens_that_is_not_told_yet(tooled, monkeypatch):
    monkeypatch.setattr(reply.ReplyResponse, "silence_seconds", 0.1)
    letters = "<tool_call>" + json.dumps({"name": "f", "arguments": {"a": "x" * 40}}) + "</tool_call>"
    desk = ScriptedDesk([letters], steps=list, between=lambda ticket: time.sleep(0.01))
    tools = [{"type": "function", "function": {"name": "f"}}]
    with serving(tooled, desk) as (url, _):
        said = httpx.post(url + PATHS[0], json={**ASKED, "tools": tools, "stream": True}, timeout=20).content
    desk.close()
    assert said.count(b": still reading") >= 2 and b'"name":"f"' in said


@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize(
    "refusal, status, word",
    [
        (Busy("8 requests wait already", "later", 7), 429, "wait"),
        (TooLong("prompt is too long: 9 tokens > 4 maximum", "shorten"), 400, "prompt is too long"),
        (TooLarge("9 GB are needed and 4 GB are free", "shorten"), 413, "9 GB"),
    ],
    ids=["busy", "long", "large"],
)
def test_what_the_desk_refuses_is_told_with_its_status(tooled, path, refusal, status, word):
    desk = ScriptedDesk(["ok"])
    desk.refusal = refusal
    with serving(tooled, desk) as (url, _):
        for stream in (True, False):
            refused = httpx.post(url + path, json={**ASKED, "stream": stream}, timeout=20)
            assert refused.status_code == status and word in refused.json()["error"]["message"]
            assert refused.headers.get("retry-after") == ("7" if status == 429 else None)
    desk.close()


@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_of_ours_is_told_to_the_operator_and_not_to_the_client(tooled, path, stream):
    def fail(ticket):
        raise SpecdecError("/secret/place is damaged", "mend it")

    records = []
    broken, failing = ScriptedDesk([]), ScriptedDesk(["a"], between=fail)
    broken.refusal = RuntimeError("/secret/place is odd")
    for desk in (broken, failing):
        with serving(tooled, desk, records) as (url, _):
            reply = httpx.post(url + path, json={**ASKED, "stream": stream}, timeout=20)
            assert "secret" not in reply.text and "the answer failed on the server" in reply.text
            assert reply.status_code == 500 or (stream and desk is failing)
            assert httpx.get(f"{url}/health").status_code == 200
        desk.close()
    assert [record.failure for record in records] == ["/secret/place is odd", "/secret/place is damaged"]


def received(connection):
    """All that comes until the other side closes."""
    found = b""
    while part := connection.recv(65_536):
        found += part
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "path, event", [(PATHS[0], b"data: {"), (PATHS[1], b"event: error"), (PATHS[2], b"event: response.failed")]
)
def test_the_end_of_the_server_ends_its_replies_and_says_so(tooled, path, event, stream):
    """Streams once broke off without a word, as if the network had failed."""
    desk = ScriptedDesk(["word " * 100_000], steps=str.split, between=lambda ticket: time.sleep(0.002))
    records = []
    with serving(tooled, desk, records) as (url, _):
        connection = posted(url, path, {**ASKED, "input": "Hi", "stream": stream})
        until(lambda: desk.passes > 3)
        began = time.monotonic()
    assert time.monotonic() - began < 2 and desk.jobs[0].cancelled
    said = received(connection)
    connection.close()
    desk.close()
    assert b"the server is shutting down" in said and [record.status for record in records] == [503]
    if stream:
        last = next(line for line in said.split(b"\n\n") if b"the server is shutting down" in line)
        assert event in last
    else:
        assert said.startswith(b"HTTP/1.1 503")
