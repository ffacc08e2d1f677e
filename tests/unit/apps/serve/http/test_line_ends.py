"""No line of a stream ends within: clients cut streams with `str.splitlines`, which knows more ends than a newline."""

import json

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local
from specdec_cli.apps.serve.http.errors import to_json

ENDS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and len(f"a{chr(code)}b".splitlines()) > 1]
TEXT = "a" + "b".join(ENDS) + "c"
STREAMS = {
    "/api/chat": {},
    "/api/generate": {"prompt": "Hi"},
    "/v1/chat/completions": {},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"max_tokens": 99},
}


def texts_of(value):
    """Every text in it."""
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in texts_of(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_has_one_object_a_line_whatever_the_answer_holds(tooled, path):
    """ollama's Python package cut lines at U+2028, and failed at the half of an object."""
    desk, user = ScriptedDesk([TEXT], steps=list), [{"role": "user", "content": "Hi"}]
    with local(tooled, desk) as client:
        reply = client.post(path, json={"stream": True, "messages": user, **STREAMS[path]})
    desk.close()
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if not line.startswith("event: ")]
    said = "".join(text for line in lines if line not in ("", "[DONE]") for text in texts_of(json.loads(line)))
    assert len(ENDS) > 8 and all(end in said for end in ENDS)


def test_json_is_one_line_and_says_the_same():
    assert to_json([TEXT, "é"]).decode().splitlines() == [to_json([TEXT, "é"]).decode()]
    assert json.loads(to_json([TEXT, "é"])) == [TEXT, "é"] and "é".encode() in to_json(["é"])
