"""What a body may not ask for is refused by its field, in every dialect, before anything is asked of the model.

A field that would need a memory of other requests, or change the answer unseen, is never let through: nothing is kept
between requests. In the default tier no file and no socket is touched for a field: an audit hook forbids that.
"""

import json
import time

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local

CHAT, TEXT, CODEX, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
COUNT, OLLAMA, GENERATE = "/v1/messages/count_tokens", "/api/chat", "/api/generate"
USER = {"role": "user", "content": "Hi"}
ASKED = {
    CHAT: {"messages": [USER]},
    TEXT: {"prompt": "Hi"},
    CODEX: {"input": "Hi"},
    CLAUDE: {"messages": [USER], "max_tokens": 4},
    COUNT: {"messages": [USER]},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    OLLAMA: {"messages": [USER]},
    GENERATE: {"prompt": "Hi"},
}
TOOL = {"type": "function", "function": {"name": "f"}}
CREATE, CONTINUE = {"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}
# A grammar cannot hold what ends nowhere.
ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
STRICT = {"type": "function", "function": {"name": "f", "parameters": ENDLESS, "strict": True}}


def said(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}]}


def shape(**schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


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
# Of one dialect: the fields of a body, and the name that is told.
REFUSED = {
    CHAT: [
        *(({"temperature": value}, "temperature") for value in (300, -1, 1e300, "1", [1], True)),
        *(({"max_tokens": value}, "max_tokens") for value in (-5, 10**30, 1.5, "9")),
        *(({name: "root ::= x"}, name) for name in ("grammar", "guided_grammar", "ebnf", "structural_tag")),
        *((shape(**{"$ref": ref}), "response_format") for ref in ("http://127.0.0.1:9/s.json", "file:///etc/passwd")),
        *((said({"type": kind}), "messages[0].content[0].type") for kind in ("input_audio", "file", "video_url")),
        (said({"type": "image_url", "image_url": {"url": "data:,"}}), "messages[0].content[0].type"),
        (said({"type": "file", "file": {"file_id": "file_1"}}), "messages[0].content[0].type"),
        (said({"type": "text", "text": 5}), "messages[0].content[0].text"),
        ({"messages": [{"role": "user"}, {"role": "boss", "content": "x"}]}, "messages[1].role"),
        ({"messages": [USER, {"role": "assistant", "audio": {"id": "audio_1"}}, USER]}, "messages[1].audio"),
        ({"messages": []}, "messages"),
        ({"tools": [TOOL, {"type": "function", "function": {}}]}, "tools[1].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {}}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "required", "stop": "}"}, "stop"),
        ({"tools": [TOOL], "guided_regex": "a+"}, "tools"),
        ({"tools": [STRICT]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "patch"}}]}, "tools[0].type"),
        ({"functions": [{}]}, "functions"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        (shape(**ENDLESS), "response_format"),
        (shape(type="object") | {"guided_regex": "a"}, "guided_regex"),
        (shape(type="object") | {"messages": [USER, {"role": "assistant", "content": "{"}]}, "response_format"),
        ({"json_schema": {}, "regex": "a"}, "regex"),
        ({"guided_json": "["}, "guided_json"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"ignore_eos": True, "response_format": {"type": "json_object"}}, "ignore_eos"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"prediction": {"type": "other"}}, "prediction.type"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {"no": 200}}, "logit_bias[0][1]"),
        ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop": 4}, "stop"),
        ({"min_tokens": -5}, "min_tokens"),
        ({"top_p": 2}, "top_p"),
        ({"n": 0}, "n"),
        ({"seed": 2**70}, "seed"),
        ({"stream": "yes"}, "stream"),
    ],
    TEXT: [
        *(({"prompt": prompt}, "prompt") for prompt in ([], ["a", 5], [[5], "a", 5], [5, "a"], [[], {}], [None])),
        ({"prompt": ["a"] * 9, "n": 2}, "prompt"),
        ({"structured_outputs": {"grammar": "root ::= a"}}, "structured_outputs.grammar"),
        ({"echo": True}, "echo"),
        ({"best_of": 3, "n": 2}, "best_of"),
    ],
    CODEX: [
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [USER, {"type": "item_reference", "id": "msg_1"}]}, "input[1].type"),
        ({"input": [{"id": "msg_1"}, USER]}, "input[0].type"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}, USER]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].type",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp", "server_label": "m"}]}, "tools[0].type"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools[0].type"),
    ],
    CLAUDE: [
        *(
            (said({"type": kind}), "messages[0].content[0].type")
            for kind in ("container_upload", "compaction", "mcp_tool_use", "tool_addition")
        ),
        (said({"type": "document", "source": {"type": "file", "file_id": "file_1"}}), "messages[0].content[0].type"),
        (said({"type": "tool_result"}), "messages[0].content[0].tool_use_id"),
        ({"max_tokens": None}, "max_tokens"),
        ({"system": [{"type": "text"}]}, "system[0].text"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"thread": CONTINUE}, "thread"),
        ({"container": "container_1"}, "container"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]}, "tools[0].type"),
    ],
    OLLAMA: [
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "boss", "content": "Hi"}]}, "messages[0].role"),
        ({"format": "yaml"}, "format"),
    ],
    GENERATE: [
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1, 2]}, "context"),
        ({"images": ["AAAA"]}, "images"),
        ({"logprobs": True}, "logprobs"),
        ({"options": {"mirostat": 2}}, "mirostat"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"options": {"num_predict": -3}}, "num_predict"),
        ({"options": [1]}, "options"),
        ({"think": 3}, "think"),
        ({"suffix": "b"}, "suffix"),
    ],
}
ROWS = [(path, *row) for path, rows in REFUSED.items() for row in rows]


@pytest.fixture
def asked(tooled):
    """(a client, its desk)."""
    desk = ScriptedDesk(["ok"])
    with local(tooled, desk) as client:
        yield client, desk
    desk.close()


def named(reply, path):
    """The field that is told, as each dialect tells it."""
    error = reply.json()["error"]
    if path in (CHAT, TEXT, CODEX):
        return error["param"]
    return (error if path.startswith("/api") else error["message"]).partition(": ")[0]


@pytest.mark.parametrize(("path", "fields", "name"), ROWS, ids=[f"{path} {fields}"[:70] for path, fields, _ in ROWS])
def test_what_cannot_be_done_is_refused_by_the_field_that_asks_for_it(asked, path, fields, name):
    client, desk = asked
    refused = client.post(path, json={**ASKED[path], **fields})
    assert (refused.status_code, named(refused, path)) == (400, name), refused.text
    assert not desk.jobs


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


@pytest.mark.parametrize(
    "path",
    ["/v1/embeddings", "/v1/rerank", "/v1/responses/compact", "/v1/responses/input_tokens", "/slots", "/completion"],
)
def test_what_is_not_served_is_a_404(asked, path):
    assert asked[0].post(path, json={}).status_code == 404


def test_what_openai_s_clients_would_fetch_again_is_nowhere(asked):
    for path in ("/v1/responses/resp_1", "/v1/conversations/conv_1", "/v1/files/file_1", "/v1/threads/thread_1"):
        assert asked[0].get(path).status_code == 404


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
