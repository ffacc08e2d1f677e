"""A wrong value is refused with the whole name of its field, in every dialect, and what nobody asks for is ignored."""

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local

CHAT, TEXT, CLAUDE, CODEX = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
USER = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture
def client(tooled):
    desk = ScriptedDesk(["ok"] * 9)
    with local(tooled, desk) as client:
        yield client, desk
    desk.close()


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"temperature": 300}, "temperature"),
        (CHAT, {"max_tokens": 1.5}, "max_tokens"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
            "messages[0].content[0].text",
        ),
        (CHAT, {"messages": [{"role": "user"}, {"role": "boss", "content": "x"}]}, "messages[1].role"),
        (CHAT, {"tools": [TOOL, {"type": "function", "function": {}}]}, "tools[1].name"),
        (CHAT, {"tools": [TOOL], "tool_choice": {"type": "function", "function": {}}}, "tool_choice.name"),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        (CHAT, {"stop": ["a"] * 65}, "stop"),
        (CHAT, {"logit_bias": {"x": 1}}, "logit_bias"),
        (CHAT, {"top_logprobs": 3}, "top_logprobs"),
        (CHAT, {"json_schema": {}, "regex": "a"}, "regex"),
        (TEXT, {"prompt": "a", "structured_outputs": {"grammar": "root ::= a"}}, "structured_outputs.grammar"),
        (TEXT, {"prompt": ["a"] * 9, "n": 2}, "prompt"),
        (CODEX, {"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        (CODEX, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    ],
)
def test_the_field_is_named(client, path, body, field):
    refused = client[0].post(path, json={**USER, **body})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
    assert refused.json()["error"]["message"].startswith(f"{field}: ") and not client[1].jobs


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        ({"system": [{"type": "text"}]}, "system[0].text"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
    ],
)
def test_anthropic_s_clients_read_it_in_the_message(client, body, field):
    refused = client[0].post(CLAUDE, json={**USER, **body})
    assert refused.status_code == 400 and refused.json()["error"]["message"].startswith(f"{field}: ")


def test_null_is_absent_whole_numbers_may_have_a_point_and_what_is_unknown_is_ignored(client):
    odd = {"temperature": None, "stop": None, "max_tokens": 4.0, "top_k": -1, "seed": None, "no_such_field": {"a": 1}}
    assert client[0].post(CHAT, json={**USER, **odd}).status_code == 200
    request = client[1].jobs[0].job.request
    assert (request.max_tokens, request.sampling, request.seed, request.stop) == (4, {"top_k": 0}, None, ())


def test_what_cannot_be_honoured_is_refused_by_name(client):
    refused = [
        *(("top_p", 2), ("n", 0), ("stop", 4), ("seed", 1.5), ("max_tokens", -2), ("grammar", 'root ::= "a"')),
        *(("guided_grammar", "start: /a/"), ("guided_json", "["), ("guided_regex", "("), ("functions", [{}])),
        *(("continue_final_message", True), ("logit_bias", {"99999": 1}), ("modalities", ["audio"]), ("messages", [])),
        *(("prediction", {"type": "other"}), ("stream", "yes"), ("structured_outputs", {"grammar": "start: /a/"})),
    ]
    for field, value in refused:
        answer = client[0].post(CHAT, json={**USER, field: value})
        assert answer.status_code == 400, (field, answer.text)
        assert answer.json()["error"]["param"].startswith(field)
