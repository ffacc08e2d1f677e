"""A body of very many small entries is refused before anything is made of them, with the field and both numbers."""

import json
import time

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local

CHAT, TEXT, CODEX, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "Hi"}
MANY = 100_000
TOOL = {"type": "function", "function": {"name": "f"}}
CROWDED = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 9_000} for _ in range(9)]
SPREAD = [{"role": "user", "content": [{}] * 99} for _ in range(9_000)]
# path, fields, the field that is named, the number that came, the number that may
CASES = {
    "parts": (
        CHAT,
        {"messages": [{"role": "user", "content": [{}] * 1_000_000}]},
        "messages[0].content",
        1_000_000,
        10_000,
    ),
    "messages": (CHAT, {"messages": [USER] * MANY}, "messages", MANY, 10_000),
    "several contents": (CHAT, {"messages": CROWDED}, "messages[1].content", 9_000, 10_000),
    "many contents": (CHAT, {"messages": SPREAD}, "messages[10].content", 99, 10_000),
    "tools": (CHAT, {"tools": [TOOL] * MANY}, "tools", MANY, 10_000),
    "calls": (
        CHAT,
        {"messages": [USER, {"role": "assistant", "tool_calls": [{}] * MANY}]},
        "messages[1].tool_calls",
        MANY,
        10_000,
    ),
    "stops": (CHAT, {"stop": ["a"] * MANY}, "stop", MANY, 10_000),
    "few stops": (CHAT, {"stop": ["a"] * 65}, "stop", 65, 64),
    "bias": (CHAT, {"logit_bias": {str(n): 1 for n in range(MANY)}}, "logit_bias", MANY, 10_000),
    "choices": (CHAT, {"guided_choice": ["a"] * MANY}, "guided_choice", MANY, 10_000),
    "items": (CODEX, {"input": [USER] * MANY}, "input", MANY, 10_000),
    "namespaces": (
        CODEX,
        {"input": "a", "tools": [{"type": "namespace", "name": "n", "tools": [{}] * MANY}]},
        "tools[0].tools",
        MANY,
        10_000,
    ),
    "prompts": (TEXT, {"prompt": ["a"] * MANY}, "prompt", MANY, 16),
    "lists of ids": (TEXT, {"prompt": [[]] * 500_000}, "prompt", 500_000, 16),
    "blocks": (CLAUDE, {"system": [{"type": "text"}] * MANY}, "system", MANY, 10_000),
    "results": (
        CLAUDE,
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{}] * MANY}]}
            ]
        },
        "messages[0].content[0].content",
        MANY,
        10_000,
    ),
    "files": (
        "/infill",
        {"input_prefix": "", "input_suffix": "", "input_extra": [{}] * MANY},
        "input_extra",
        MANY,
        10_000,
    ),
}


@pytest.mark.parametrize("path, fields, field, given, most", CASES.values(), ids=list(CASES))
def test_many_entries_cost_little_and_are_a_400(tooled, path, fields, field, given, most):
    """The bug: 3 MB took 14.6 s and 1.8 GB, for each part was made an object of 25 fields. Now 0.01 to 0.4 s."""
    body, desk = json.dumps({"messages": [USER], "max_tokens": 4, **fields}).encode(), ScriptedDesk(["ok"])
    with local(tooled, desk) as client:
        began = time.process_time()
        refused = client.post(path, content=body, headers={"Content-Type": "application/json"})
        seconds = time.process_time() - began
    desk.close()
    message = refused.json()["error"]["message"]
    assert refused.status_code == 400 and message.startswith(f"{field}: "), message
    assert str(given) in message and str(most) in message and len(message) < 200, message
    assert seconds < 2 and not desk.jobs


def test_as_many_as_may_be_are_read(tooled):
    """Negative control: at the bound nothing is refused."""
    desk = ScriptedDesk(["ok"])
    parts = [{"type": "text", "text": "a"}] * 9_990
    with local(tooled, desk) as client:
        reply = client.post(CHAT, json={"messages": [{"role": "user", "content": parts}], "max_tokens": 4})
        assert reply.status_code == 200, reply.text
    desk.close()
