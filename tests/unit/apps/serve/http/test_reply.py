"""What is counted and logged of a reply, and when."""

import asyncio
import json
import re

import pytest

from fakes.desk import ScriptedDesk
from specdec_cli.apps.serve.http.access import AccessPolicy
from specdec_cli.apps.serve.http.app import make_app
from specdec_cli.apps.serve.http.service import Service

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
ENDS = {"/v1/chat/completions": b"[DONE]", "/v1/messages": b"message_stop", "/v1/responses": b"response.completed"}
PORT = 8040


async def called(app, method, path, body=b"", on_body=None):
    """The body that `app` answers with, without any network; `on_body` is awaited with all of it, before each part."""
    asked = [{"type": "http.request", "body": body}]
    headers = [(b"host", b"localhost:%d" % PORT), (b"content-type", b"application/json")]
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


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ENDS)
def test_what_a_client_has_the_end_of_is_counted_and_logged(tooled, path, stream):
    """Replies were counted once their last byte was sent: /metrics, asked for at that moment, could lack the answer."""
    desk, records, found = ScriptedDesk(["ok"]), [], []
    asked = {"input": "Hi"} if path.endswith("responses") else ASKED

    async def scene():
        app = make_app(Service(tooled, desk, AccessPolicy(PORT), records.append))

        async def look(said):
            if found or (stream and ENDS[path] not in said):
                return
            text = (await called(app, "GET", "/metrics")).decode()
            found.append((dict(re.findall(r"^llamacpp:(\S+) (\S+)$", text, re.M)), list(records)))

        await called(app, "POST", path, json.dumps({**asked, "stream": stream}).encode(), look)

    asyncio.run(asyncio.wait_for(scene(), 20))
    desk.close()
    ((values, told),) = found
    assert (values["tokens_predicted_total"], values["n_decode_total"]) == ("1", "1")
    assert [record.words["answers"] for record in told] == [["ok"]] and told == records


@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("stop", "completed")])
@pytest.mark.parametrize("stream", [True, False])
def test_the_last_words_of_a_response_have_its_status(tooled, stream, reason, status):
    """The bug: of an answer cut short the response was incomplete, and its message completed."""
    desk = ScriptedDesk(["ok"], reason=reason)
    app = make_app(Service(tooled, desk, AccessPolicy(PORT), lambda record: None))
    body = json.dumps({"input": "Hi", "stream": stream}).encode()
    said = asyncio.run(asyncio.wait_for(called(app, "POST", "/v1/responses", body), 20)).decode()
    desk.close()
    if stream:
        events = [json.loads(line.removeprefix("data: ")) for line in said.splitlines() if line.startswith("data: ")]
        (item,) = (event["item"] for event in events if event["type"] == "response.output_item.done")
        found = events[-1]["response"]
        assert item == found["output"][-1]
    else:
        found = json.loads(said)
    assert (found["status"], found["output"][-1]["status"]) == (status, status)
