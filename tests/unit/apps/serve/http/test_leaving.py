"""Clients that leave, wait or hold others up; a desk that refuses; a server that ends: each hears, others go on."""

import json
import threading
import time
from dataclasses import replace

import httpx
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import posted, received, serving, until
from specdec_cli.apps.serve.http import reply
from specdec_cli.apps.serve.job import Busy, TooLong
from specdec_cli.core.errors import DoesNotFit, SpecdecError
from specdec_cli.core.template import NO_VALUES
from specdec_cli.models.tokenizer import Tokenizer, unwatched

pytestmark = pytest.mark.slow  # a server that listens

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
CHAT = PATHS[0]


def talks(handle):
    """Between the rounds of an answer that goes on for long."""
    time.sleep(0.002)


@pytest.mark.parametrize("path", [*PATHS[:2], PATHS[3]])
@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_during_an_answer_ends_it(tooled, path, stream):
    desk, records = ScriptedDesk(["word " * 100_000], steps=str.split, between=talks), []
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

    def read(handle):
        reading.set()
        until(lambda: handle.cancelled, 20)

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
def test_a_stream_gives_signs_of_life_while_the_prompt_is_read(scripted, monkeypatch, path, sign):
    monkeypatch.setattr(reply.ReplyResponse, "silence_seconds", 0.1)
    url, _ = scripted("a", between=lambda handle: time.sleep(0.6), how=serving)
    said = httpx.post(url + path, json={**ASKED, "stream": True}, timeout=20).content
    assert said.count(sign) >= 2


def test_a_stream_gives_signs_of_life_while_much_happens_that_is_not_told_yet(scripted, monkeypatch):
    monkeypatch.setattr(reply.ReplyResponse, "silence_seconds", 0.1)
    letters = "<tool_call>" + json.dumps({"name": "f", "arguments": {"a": "x" * 40}}) + "</tool_call>"
    url, _ = scripted(letters, steps=list, between=lambda handle: time.sleep(0.01), how=serving)
    tools = [{"type": "function", "function": {"name": "f"}}]
    said = httpx.post(url + CHAT, json={**ASKED, "tools": tools, "stream": True}, timeout=20).content
    assert said.count(b": still reading") >= 2 and b'"name":"f"' in said


REFUSALS = {
    429: (Busy("8 requests wait already", "later", 7), "wait"),
    400: (TooLong("prompt is too long: 9 tokens > 4 maximum", "shorten"), "prompt is too long"),
    413: (DoesNotFit("9 GB are needed and 4 GB are free", "shorten"), "9 GB"),
}


@pytest.mark.parametrize("path", PATHS[:2])
def test_what_the_desk_refuses_is_told_with_its_status(scripted, path):
    url, desk = scripted(how=serving)
    for status, (desk.refusal, word) in REFUSALS.items():
        for stream in (True, False):
            refused = httpx.post(url + path, json={**ASKED, "stream": stream}, timeout=20)
            assert refused.status_code == status and word in refused.json()["error"]["message"]
            assert refused.headers.get("retry-after") == ("7" if status == 429 else None)


@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_of_ours_is_told_to_the_operator_and_not_to_the_client(scripted, path, stream):
    def fail(handle):
        raise SpecdecError("/secret/place is damaged", "mend it")

    records = []
    url, desk = scripted("a", between=fail, records=records, how=serving)
    for desk.refusal in (RuntimeError("/secret/place is odd"), None):
        reply = httpx.post(url + path, json={**ASKED, "stream": stream}, timeout=20)
        assert "secret" not in reply.text and "the answer failed on the server" in reply.text
        assert reply.status_code == 500 or (stream and desk.refusal is None)
        assert httpx.get(f"{url}/health").status_code == 200
    assert [record.failure for record in records] == ["/secret/place is odd", "/secret/place is damaged"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "path, event", [(PATHS[0], b"data: {"), (PATHS[1], b"event: error"), (PATHS[2], b"event: response.failed")]
)
def test_the_end_of_the_server_ends_its_replies_and_says_so(tooled, path, event, stream):
    """Streams once broke off without a word, as if the network had failed."""
    desk, records = ScriptedDesk(["word " * 100_000], steps=str.split, between=talks), []
    with serving(tooled, desk, records) as (url, _):
        connection = posted(url, path, {**ASKED, "input": "Hi", "stream": stream})
        until(lambda: desk.passes > 3)
        began = time.monotonic()
    assert time.monotonic() - began < 2 and desk.jobs[0].cancelled
    said, _ = received(connection)
    desk.close()
    assert b"the server is shutting down" in said and [record.status for record in records] == [503]
    if stream:
        last = next(line for line in said.split(b"\n\n") if b"the server is shutting down" in line)
        assert event in last
    else:
        assert said.startswith(b"HTTP/1.1 503")


def test_who_does_not_read_an_answer_holds_nobody_up(scripted):
    """Its answer ends, and others are answered meanwhile."""
    pieces = lambda text: [text[at : at + 500] for at in range(0, len(text), 500)]  # noqa: E731
    url, desk = scripted("word " * 20_000, "ok", steps=pieces, how=serving)
    with posted(url, CHAT, {**ASKED, "stream": True}):
        assert httpx.post(url + CHAT, json=ASKED, timeout=20).status_code == 200
        until(lambda: desk.running is None and not desk.waiting)
        assert len(desk.jobs) == 2 and httpx.get(f"{url}/health").json()["running"] == 0


# Whatever one client sends, the others are answered, and it is refused as soon as that is certain.
LONG_WORDS = "two words " * 100_000


def asked(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


@pytest.fixture
def slowly(monkeypatch):
    """Long texts are encoded once `go` is set, and each is counted."""
    go, seen, encode = threading.Event(), [], Tokenizer.continuation

    def waiting(self, text, between=unwatched):
        between(len(text) // self._longest_token)
        if "two words" in text:
            seen.append(len(text))
            assert go.wait(30)
        return encode(self, text)

    monkeypatch.setattr(Tokenizer, "continuation", waiting)
    yield go, seen
    go.set()


def test_a_short_chat_is_answered_while_long_ones_are_encoded(scripted, model, slowly):
    """The bug: one thread encoded everything, and a chat of two letters waited 12 s beside a body of 1 MB."""
    url, desk = scripted(model=replace(model, context_limit=2_000_000), how=serving)
    long = [posted(url, CHAT, asked(LONG_WORDS + str(number))) for number in range(3)]
    until(lambda: slowly[1])
    assert httpx.post(url + CHAT, json=asked("Hi"), timeout=20).status_code == 200
    assert len(desk.jobs) == 1
    slowly[0].set()
    until(lambda: len(desk.jobs) == 4, 60)
    for connection in long:
        connection.close()


@pytest.fixture
def refused(scripted, model):
    """What is told of a text for which the context is too short."""

    def ask(limit, text, **more):
        client, desk = scripted(model=replace(model, context_limit=limit))
        said = client.post(CHAT, json=asked(text, **more))
        assert not desk.jobs
        return said.status_code, said.json()["error"]

    return ask


def test_a_body_that_cannot_fit_is_refused_before_it_is_encoded_and_else_counted_whole(refused, model, slowly):
    """By the longest token's bytes at first, then by what was counted."""
    status, error = refused(2048, LONG_WORDS)
    assert status == 400 and error["code"] == "context_length_exceeded" and not slowly[1]
    assert error["message"].startswith("prompt is too long: at least ")
    slowly[0].set()
    tokens = len(model.prompt([{"role": "user", "content": LONG_WORDS}], NO_VALUES))
    status, error = refused(tokens - 9, LONG_WORDS)
    assert (status, error["message"]) == (400, f"prompt is too long: {tokens} tokens > {tokens - 10} maximum")


def test_a_prediction_of_many_contexts_is_refused_and_others_reach_the_desk_as_ids(refused, scripted, model, slowly):
    """The bug: 4.8 MB took half a minute and 1.2 GB in the thread that everybody's answers are computed in."""
    slowly[0].set()
    status, error = refused(2048, "Hi", prediction={"type": "content", "content": LONG_WORDS})
    assert status == 413 and error["message"].startswith("the prediction is too long: at least ")
    client, desk = scripted(model=model)
    said = asked("Hi", prediction={"type": "content", "content": "two words"})
    assert client.post(CHAT, json=said).status_code == 200
    assert desk.jobs[0].job.request.predict == tuple(model.tokenizer.continuation("two words"))
