"""What a body may not ask for is refused by its field, in every dialect, before anything is asked of the model.

One by one such fields are in the table of refused bodies, `golden/data/bodies.txt`.

A field that would need a memory of other requests, or change the answer unseen, is never let through: nothing is kept
between requests. In the default tier no file and no socket is touched for a field: an audit hook forbids that.
"""

import gzip
import json
import random
import time
import typing

import pytest
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from specdec_cli.apps.serve.http.access import AccessPolicy

CHAT, TEXT, CODEX, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = {"role": "user", "content": "Hi"}
ASKED = {
    CHAT: {"messages": [USER]},
    TEXT: {"prompt": "Hi"},
    CODEX: {"input": "Hi"},
    CLAUDE: {"messages": [USER], "max_tokens": 4},
    COUNT: {"messages": [USER]},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
}
JSON = {"Content-Type": "application/json"}
TOOL = {"type": "function", "function": {"name": "f"}}
CREATE, CONTINUE = {"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}
# Refused by OpenAI's and Anthropic's dialects and by llama.cpp's, whoever's fields they are.
EVERYWHERE = {
    "thread": CREATE,
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "session_params": {"id": "s"},
    "background": True,
    "mcp_servers": [{"type": "url", "name": "m", "url": "http://x"}],
    "container": {"skills": []},
    "compaction": {"type": "summarize"},
    "use_beam_search": True,
    "allowed_token_ids": [5],
    "typical_p": 0.9,
    "xtc_probability": 0.5,
    "dry_multiplier": 0.8,
    "mirostat": 2,
    "output_modalities": ["image"],
    "top_n_sigma": 1.0,
    "guidance_scale": 1.5,
}


def named(reply, path):
    """The field that is told, as each dialect tells it."""
    error = reply.json()["error"]
    return error["param"] if path in (CHAT, TEXT, CODEX) else error["message"].partition(": ")[0]


@pytest.mark.parametrize("path", [CHAT, TEXT, CODEX, CLAUDE, COUNT, "/infill"])
def test_no_dialect_takes_a_field_that_would_need_a_memory_or_change_the_answer_unseen(asked, path):
    """`thread` was ignored: the second request was answered without question, tools and system."""
    client, desk = asked
    for name, value in EVERYWHERE.items():
        refused = client.post(path, json={**ASKED[path], name: value})
        assert (refused.status_code, named(refused, path)) == (400, name), refused.text
    assert not desk.jobs


@pytest.mark.parametrize("path", [CLAUDE, "/messages", COUNT])
@pytest.mark.parametrize("thread", [CREATE, CONTINUE])
def test_a_thread_is_refused_by_the_code_that_anthropic_s_clients_act_upon(asked, path, thread):
    refused = asked[0].post(path, json={"thread": thread, "max_tokens": 4, "stream": True, "messages": []}).json()
    assert refused["type"] == "error" and refused["error"]["type"] == "invalid_request_error"
    assert refused["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


MANY = 100_000
CROWDED = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 9_000} for _ in range(9)]
SPREAD = [{"role": "user", "content": [{}] * 99} for _ in range(9_000)]
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [{}] * MANY}
FILES = {"input_prefix": "", "input_suffix": "", "input_extra": [{}] * MANY}
# path, fields, the field that is named, the number that came, the number that may
CASES = {
    "parts": (CHAT, {"messages": [{**USER, "content": [{}] * 1_000_000}]}, "messages[0].content", 1_000_000, 10_000),
    "several contents": (CHAT, {"messages": CROWDED}, "messages[1].content", 9_000, 10_000),
    "many contents": (CHAT, {"messages": SPREAD}, "messages[10].content", 99, 10_000),
    "tools": (CHAT, {"tools": [TOOL] * MANY}, "tools", MANY, 10_000),
    "few stops": (CHAT, {"stop": ["a"] * 65}, "stop", 65, 64),
    "bias": (CHAT, {"logit_bias": {str(n): 1 for n in range(MANY)}}, "logit_bias", MANY, 10_000),
    "items": (CODEX, {"input": [USER] * MANY}, "input", MANY, 10_000),
    "prompts": (TEXT, {"prompt": ["a"] * MANY}, "prompt", MANY, 16),
    "lists of ids": (TEXT, {"prompt": [[]] * 500_000}, "prompt", 500_000, 16),
    "results": (CLAUDE, {"messages": [{**USER, "content": [RESULT]}]}, "messages[0].content[0].content", MANY, 10_000),
    "files": ("/infill", FILES, "input_extra", MANY, 10_000),
}


@pytest.mark.parametrize("path, fields, field, given, most", CASES.values(), ids=list(CASES))
def test_many_entries_cost_little_and_are_a_400(asked, path, fields, field, given, most):
    """The bug: 3 MB took 14.6 s and 1.8 GB, for each part was made an object of 25 fields. Now 0.01 to 0.4 s."""
    body, (client, desk) = json.dumps({"messages": [USER], "max_tokens": 4, **fields}).encode(), asked
    began = time.process_time()
    refused = client.post(path, content=body, headers=JSON)
    seconds = time.process_time() - began
    message = refused.json()["error"]["message"]
    assert refused.status_code == 400 and message.startswith(f"{field}: "), message
    assert str(given) in message and str(most) in message and len(message) < 200, message
    assert seconds < 2 and not desk.jobs


def test_as_many_as_may_be_are_read(asked):
    """Negative control: at the bound nothing is refused."""
    parts = [{"type": "text", "text": "a"}] * 9_990
    reply = asked[0].post(CHAT, json={"messages": [{"role": "user", "content": parts}], "max_tokens": 4})
    assert reply.status_code == 200, reply.text


# Every item of /v1/responses that OpenAI's SDK knows is read, or refused by its name.
HINTS = [typing.get_type_hints(member)["type"] for member in typing.get_args(ResponseInputItemParam)]
NAMES = {name for hint in HINTS for one in (hint, *typing.get_args(hint)) for name in typing.get_args(one) or (one,)}
SDK = sorted(name for name in NAMES if isinstance(name, str))
WORDS = "grass is green"
CALL = {"call_id": "1", "name": "read", "arguments": "{}", "input": WORDS}
# The members whose words a template takes; what it makes of thinking is its own affair.
READ = {
    "message": {"role": "assistant", "content": WORDS},
    "function_call": CALL,
    "custom_tool_call": CALL,
    "local_shell_call": {"call_id": "1", "action": {"type": "exec", "command": [WORDS]}},
    "function_call_output": {"call_id": "1", "output": WORDS},
    "custom_tool_call_output": {"call_id": "1", "output": WORDS},
    "local_shell_call_output": {"id": "1", "output": WORDS},
    "reasoning": {"id": "1", "summary": [], "content": [{"type": "reasoning_text", "text": WORDS}]},
}


def with_items(client, *items):
    """The reply to these between two messages."""
    return client.post(CODEX, json={"input": [USER, *items, USER]})


def test_the_sdk_knows_the_members_that_are_read():
    assert READ.keys() < set(SDK) and len(SDK) > 25


@pytest.mark.parametrize("kind", READ)
def test_the_prompt_grows_with_an_item_that_is_read(scripted, thinking, kind):
    client, _ = scripted(model=thinking)
    longer, bare = (
        with_items(client, *items).json()["usage"]["input_tokens"] for items in ([{"type": kind, **READ[kind]}], [])
    )
    assert longer > bare


@pytest.mark.parametrize("kind", [*sorted({*SDK} - {*READ}), "of_next_year", 5, True, ["message"]])
def test_an_item_that_is_not_read_is_refused_by_its_kind(asked, kind):
    """`additional_tools`, `tool_search_output`, `shell_call_output`, `mcp_call` and more were a 200 without their
    functions and results."""
    reply = with_items(asked[0], {"type": kind, "id": "1", "call_id": "1", "output": WORDS, "tools": []})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "input[1].type") and json.dumps(kind) in error["message"]


# Bodies that nobody should send: an error of the dialect or an answer, never a 500, never silence.
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
NESTED = [
    b'{"messages": ' + begin * depth + b"1" + end * depth + b"}"
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}"))
    for depth in (1_000, 1_000_000)
]
NO_JSON = (
    *(b"", b"{", b"[]", b"[" * 100_000, b'{"n": ' + b"9" * 9000 + b"}", b"\xff\xfe", b'{"temperature": NaN}'),
    *(b'{"n": 1e400}', *NESTED),
)
ODDLY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "content": "hi", "tokens": [5]}
PATHS = (CODEX, TEXT, CHAT, CLAUDE, "/tokenize", "/detokenize", "/apply-template")


def wrong(path, reply):
    """Whether it is not as it should be."""
    if reply.status_code == 200:
        return False
    error = reply.json()["error"]
    if path == CLAUDE:
        shaped = reply.json()["type"] == "error"
    else:
        shaped = "param" in error if path.startswith("/v1") else isinstance(error["code"], int)
    inside = any(word in error["message"] for word in ("Traceback", ".py", "Error:", "site-packages"))
    return not 400 <= reply.status_code < 500 or not shaped or not error["message"] or inside


@pytest.mark.parametrize("path", PATHS)
def test_odd_bodies_are_answered_or_refused_in_the_shape_of_their_dialect(asked, path):
    luck, statuses, bodies = random.Random(path), set(), list(NO_JSON)
    for _ in range(60):
        odd = {name: luck.choice(ODD) for name in luck.sample(FIELDS, luck.randint(1, 3))}
        bodies.append(json.dumps({**ODDLY, **(ASKED.get(path, {}) if path in (CODEX, TEXT) else {}), **odd}).encode())
    for body in bodies:
        began = time.process_time()
        reply = asked[0].post(path, content=body, headers=JSON)
        assert not wrong(path, reply), (body[:200], reply.status_code, reply.text[:300])
        assert time.process_time() - began < 2 and (reply.status_code == 400 or body not in NO_JSON)
        statuses.add(reply.status_code)
    assert {200, 400} <= statuses and asked[0].get("/health").status_code == 200


def test_what_says_that_it_is_packed_and_is_not_is_a_400(asked):
    for body in (b"{}", gzip.compress(b"{}", mtime=0)[:-9] + b"?"):
        reply = asked[0].post(CHAT, content=body, headers={**JSON, "Content-Encoding": "gzip"})
        assert reply.status_code == 400 and reply.json()["error"]["message"]


def test_a_body_has_32_megabytes_at_most():
    assert AccessPolicy(1).most_body_bytes == 32_000_000
