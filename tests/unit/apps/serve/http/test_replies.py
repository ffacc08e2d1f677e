"""What clients read beside the words, and when: sums, thinking, whose each word is, ends of lines, errors."""

import asyncio
import json
import re
from dataclasses import replace

import pytest

from fakes.desk import ScriptedDesk, by_letters, spoken_desk
from fakes.server import service_of
from fakes.ui_script import drafted
from specdec_cli.apps.serve.http.answer import ChatRequest
from specdec_cli.apps.serve.http.app import ANSWERS, make_app
from specdec_cli.apps.serve.http.dialect import Dialect
from specdec_cli.apps.serve.http.errors import as_http_error, of_failure
from specdec_cli.core.errors import DoesNotFit, NotAvailable, Refused
from specdec_cli.core.events import Failure
from specdec_cli.core.request import Request

CHAT, TEXT, CLAUDE, CODEX = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
ASKED = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "max_tokens": 8}
COUNTED = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}


def chunks(reply):
    """The data of a stream's events, in order."""
    assert reply.status_code == 200, reply.text
    return [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("n", [1, 3])
def test_the_prompt_is_counted_once_however_many_answers_there_are(scripted, path, n):
    """A stream ends with [DONE], once; the sums stand before it, where they were asked for."""
    client, _ = scripted(*["It is so."] * 20, steps=lambda text: ["It ", "is ", "so."])
    whole, alone = client.post(path, json={**ASKED, "n": n}).json(), client.post(path, json=ASKED).json()["usage"]
    assert [one["index"] for one in whole["choices"]] == list(range(n))
    assert whole["usage"]["prompt_tokens"] == alone["prompt_tokens"] > 0
    assert whole["usage"]["completion_tokens"] == n * alone["completion_tokens"]
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + n * alone["completion_tokens"]
    found = chunks(client.post(path, json={**COUNTED, "n": n}))
    assert found[-1] == "[DONE]" and found.count("[DONE]") == 1
    *pieces, sums = map(json.loads, found[:-1])
    assert (sums["choices"], sums["usage"]) == ([], whole["usage"])
    assert pieces and all(one["choices"] and "usage" in one and one["usage"] is None for one in pieces)
    *pieces, last = chunks(client.post(path, json={**ASKED, "n": n, "stream": True}))
    assert last == "[DONE]" and not any("usage" in json.loads(one) for one in pieces)


def test_thinking_ends_with_a_signature_as_anthropic_s_does(scripted, thinking):
    client, _ = scripted("I wonder.</think>\n\nYes.", steps=by_letters, model=thinking)
    asked = {**ASKED, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 9}}
    events = [json.loads(one) for one in chunks(client.post(CLAUDE, json=asked))]
    blocks = [(one["type"], one.get("delta", {}).get("type")) for one in events if "content_block_" in one["type"]]
    end = blocks.index(("content_block_stop", None))
    assert blocks[end - 1] == ("content_block_delta", "signature_delta")
    assert blocks.count(blocks[end - 1]) == 1 and ("content_block_delta", "text_delta") in blocks[end:]


DETAILS = {
    CHAT: ("completion_tokens_details", {"messages": ASKED["messages"]}),
    CODEX: ("output_tokens_details", {"input": "Hi", "reasoning": {"effort": "low"}}),
}


@pytest.mark.parametrize("path", DETAILS)
@pytest.mark.parametrize(
    "steps, expected",
    [(["a", "b\n", "</thi", "nk>", "\n", "The answer, with </think>"], 4), (["a", "b"], 2), (["</think>", "x"], 1)],
    ids=["closed", "never closed", "at once"],
)
def test_the_tokens_until_the_end_of_the_thinking_are_counted(thinking, scripted, path, steps, expected):
    client, _ = scripted("".join(steps), steps=lambda text: steps, model=thinking)
    name, body = DETAILS[path]
    assert client.post(path, json=body).json()["usage"][name]["reasoning_tokens"] == expected


# The tokens do not end where the tags do, and the stop token is not text.
THINKING = (
    drafted(0, [], 0, "Let"),
    drafted(1, [" me", " no"], 1, " see"),
    drafted(2, ["\n</think>\n\nA", "b"], 2, "c"),
    replace(drafted(3, ["x", "y"], 0, "<|im_end|>"), text=""),
)


def test_thinking_and_answer_each_say_whose_words_they_are_to_whoever_asks(thinking, start):
    client = start(spoken_desk(THINKING), thinking)
    asked = {"messages": ASKED["messages"], "stream": True, "reasoning_effort": "high"}
    told = [json.loads(one) for one in chunks(client.post(CHAT, json={**asked, "specdec": True}))[:-1]]
    parts = [choice["delta"] for chunk in told for choice in chunk["choices"]]
    thoughts = [pair for delta in parts if "reasoning_content" in delta for pair in delta["specdec"]]
    words = [pair for delta in parts if "reasoning_content" not in delta for pair in delta.get("specdec", ())]
    assert thoughts == [["plain", "Let"], ["accepted", " me"], ["rejected", " no"], ["correction", " see"]]
    assert words == [["accepted", "A"], ["accepted", "b"], ["bonus", "c"], ["rejected", "x"], ["discarded", "y"]]
    assert not any("specdec" in one for one in chunks(client.post(CHAT, json=asked)))


ENDS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and len(f"a{chr(code)}b".splitlines()) > 1]
ENDED = "a" + "b".join(ENDS) + "c"
BODIES = dict.fromkeys(("/api/chat", "/api/generate", CHAT, TEXT, CLAUDE), ASKED) | {CODEX: {"input": "Hi"}}


def texts_of(value):
    """Every text in it."""
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in texts_of(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_has_one_object_a_line_whatever_the_answer_holds(scripted, path):
    """ollama's Python package cut lines at U+2028, and failed at the half of an object."""
    client, _ = scripted(ENDED, steps=list)
    reply = client.post(path, json={"stream": True, **BODIES[path]})
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if not line.startswith("event: ")]
    said = "".join(text for line in lines if line not in ("", "[DONE]") for text in texts_of(json.loads(line)))
    assert len(ENDS) > 8 and all(end in said for end in ENDS)


async def called(app, method, path, body=b"", on_body=None):
    """The body that `app` answers with, without any network; `on_body` is awaited with all of it, before each part."""
    asked = [{"type": "http.request", "body": body}]
    headers = [(b"host", b"localhost:8040"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    said = b""

    async def receive():
        return asked.pop() if asked else await asyncio.Event().wait()

    async def send(message):
        nonlocal said
        said += message.get("body", b"")
        if on_body and message["type"] == "http.response.body":
            await on_body(said)

    await app({**scope, "headers": headers, "http_version": "1.1", "root_path": "", "scheme": "http"}, receive, send)
    return said


LAST = {CHAT: b"[DONE]", CLAUDE: b"message_stop", CODEX: b"response.completed"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", LAST)
def test_what_a_client_has_the_end_of_is_counted_and_logged(tooled, path, stream):
    """Replies were counted once their last byte was sent: /metrics, asked for at that moment, could lack the answer."""
    desk, records, found = ScriptedDesk(["ok"]), [], []

    async def scene():
        app = make_app(service_of(tooled, desk, records, None))

        async def look(said):
            if found or (stream and LAST[path] not in said):
                return
            text = (await called(app, "GET", "/metrics")).decode()
            found.append((dict(re.findall(r"^llamacpp:(\S+) (\S+)$", text, re.M)), list(records)))

        await called(app, "POST", path, json.dumps({**BODIES[path], "stream": stream}).encode(), look)

    asyncio.run(asyncio.wait_for(scene(), 20))
    desk.close()
    ((values, told),) = found
    assert (values["tokens_predicted_total"], values["n_decode_total"]) == ("1", "1")
    assert [record.words["answers"] for record in told] == [["ok"]] and told == records


@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("stop", "completed")])
def test_the_last_words_of_a_response_have_its_status_streamed_or_not(scripted, reason, status):
    """The bug: of an answer cut short the response was incomplete, and its message completed."""
    client, _ = scripted("ok", "ok", reason=reason)
    whole = client.post(CODEX, json={"input": "Hi"}).json()
    events = [json.loads(one) for one in chunks(client.post(CODEX, json={"input": "Hi", "stream": True}))]
    (item,) = (event["item"] for event in events if event["type"] == "response.output_item.done")
    for found in (whole, events[-1]["response"]):
        assert (found["status"], found["output"][-1]["status"]) == (status, status)
    assert item == found["output"][-1]


class Silent(Dialect):
    """A dialect that lacks a method."""

    def say(self, choice, delta, answer):
        return b""


def test_a_dialect_that_lacks_a_method_asks_nothing_of_the_model_and_the_log_names_it(scripted, monkeypatch):
    """The reason was empty: NotImplementedError says nothing."""
    monkeypatch.setitem(ANSWERS, "/silent", (lambda values, model: ChatRequest(Request(), text="a"), Silent))
    records = []
    client, desk = scripted(records=records)
    assert client.post("/silent", json={}).status_code == 500
    assert "Silent" in records[0].failure and "whole" in records[0].failure and not desk.jobs


@pytest.mark.parametrize("kind, status", [(NotAvailable, 503), (Refused, 503), (DoesNotFit, 413)])
def test_an_error_says_what_it_can_without_a_path_and_the_operator_reads_all(kind, status):
    for message, told in (("tiny is gone", True), ("/Users/Jane Doe/models/a is gone", False), ("~/a is gone", False)):
        error = as_http_error(kind(message, "pull it"))
        later = of_failure(Failure(message, "pull it", kind.exit_code))
        assert (error.status, error.message, error.cause) == (later.status, later.message, later.cause)
        assert error.status == status and message in error.cause and (message in error.message) == told
