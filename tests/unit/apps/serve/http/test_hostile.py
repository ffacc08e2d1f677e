"""Bodies that nobody should send: an error of the dialect or an answer, never a 500, never silence."""

import json
import random

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local

# fmt: off
FIELDS = (
    "model", "messages", "input", "prompt", "max_tokens", "temperature", "top_k", "seed", "stop", "n", "logprobs",
    "logit_bias", "tools", "tool_choice", "stream", "system", "response_format", "text", "reasoning", "prediction",
    "stream_options", "thinking", "content", "tokens", "suffix", "chat_template_kwargs", "guided_json", "guided_regex",
    "guided_choice", "structured_outputs",
)
ODD = (
    None, True, 0, -1, 3, 1e308, 2**70, 0.5, "", "x", "\ud800", "\x00", "a" * 3000, [], {}, [[]], [None], [1, "a"],
    {"type": "text"}, {"type": "json_schema"}, {"type": "function"}, [{"role": "user"}], [{"role": 7}],
    [{"role": "tool", "content": [{"type": "document", "source": 1}]}], {"regex": "("}, {"choice": []}, {"5": 4},
    [{"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]}], [[5], "a"], {"effort": []},
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}], "content": None}],
    [{"type": "function", "function": {"name": "f", "parameters": {"type": 7}, "strict": True}}],
    {"type": "json_schema", "json_schema": {"schema": {"pattern": "(((((((a*)*)*)*)*)*)*)*b"}}},
    [{"type": "function_call_output", "call_id": "x", "output": 4}],
)
# fmt: on
BYTES = (b"", b"{", b"[]", b"[" * 100_000, b'{"n": ' + b"9" * 9000 + b"}", b"\xff\xfe", b'{"temperature": NaN}')
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "content": "hi", "tokens": [5]}
NEEDED = {"/v1/responses": {"input": "hi"}, "/v1/completions": {"prompt": "hi"}}
PATHS = (*NEEDED, "/v1/chat/completions", "/v1/messages", "/tokenize", "/detokenize", "/apply-template")


def wrong(path, reply):
    """Whether it is not as it should be."""
    if reply.status_code == 200:
        return False
    error = reply.json()["error"]
    if path.startswith("/v1/messages"):
        shaped = reply.json()["type"] == "error"
    else:
        shaped = "param" in error if path.startswith("/v1") else isinstance(error["code"], int)
    inside = any(word in error["message"] for word in ("Traceback", ".py", "Error:", "site-packages"))
    return not 400 <= reply.status_code < 500 or not shaped or not error["message"] or inside


@pytest.mark.parametrize("path", PATHS)
def test_odd_bodies_are_answered_or_refused_in_the_shape_of_their_dialect(tooled, path):
    luck, statuses, desk = random.Random(path), set(), ScriptedDesk(["ok"] * 5000)
    bodies = list(BYTES)
    for _ in range(60):
        odd = {name: luck.choice(ODD) for name in luck.sample(FIELDS, luck.randint(1, 3))}
        bodies.append(json.dumps({**ASKED, **NEEDED.get(path, {}), **odd}).encode())
    with local(tooled, desk) as client:
        for body in bodies:
            reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
            assert not wrong(path, reply), (body[:200], reply.status_code, reply.text[:300])
            statuses.add(reply.status_code)
        assert client.get("/health").status_code == 200
    desk.close()
    assert {200, 400} <= statuses, statuses
