"""A wrong value is refused with the whole name of its field, in every dialect, and what nobody asks for is ignored."""

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local
from specdec_cli.apps.serve.http.answer import ChatRequest
from specdec_cli.apps.serve.http.app import ANSWERS
from specdec_cli.apps.serve.http.dialect import Dialect
from specdec_cli.apps.serve.http.errors import as_http_error, of_failure
from specdec_cli.core.errors import DoesNotFit, NotAvailable, Refused
from specdec_cli.core.events import Failure
from specdec_cli.core.request import Request

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
        (CHAT, {"logit_bias": {"-1": 1}}, "logit_bias"),
        (CHAT, {"json_schema": {}, "regex": "a"}, "regex"),
        (TEXT, {"prompt": "a", "structured_outputs": {"grammar": "root ::= a"}}, "structured_outputs.grammar"),
        (TEXT, {"prompt": ["a"] * 9, "n": 2}, "prompt"),
        (TEXT, {"prompt": []}, "prompt"),
        (CODEX, {"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        (CODEX, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    ],
)
def test_the_field_is_named(client, path, body, field):
    refused = client[0].post(path, json={**USER, **body})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field), refused.text
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
        *(("logit_bias", {"99999": 1}), ("messages", [])),
        *(("prediction", {"type": "other"}), ("stream", "yes"), ("structured_outputs", {"grammar": "start: /a/"})),
    ]
    for field, value in refused:
        answer = client[0].post(CHAT, json={**USER, field: value})
        assert answer.status_code == 400, (field, answer.text)
        assert answer.json()["error"]["param"].startswith(field)


class Silent(Dialect):
    """A dialect that lacks a method."""

    def say(self, choice, delta, answer):
        return b""


def test_a_dialect_that_lacks_a_method_asks_nothing_of_the_model_and_the_log_names_it(tooled, monkeypatch):
    """The reason was empty: NotImplementedError says nothing."""
    monkeypatch.setitem(ANSWERS, "/silent", (lambda values, model: ChatRequest(Request(), text="a"), Silent))
    desk, records = ScriptedDesk(["ok"]), []
    with local(tooled, desk, records) as client:
        assert client.post("/silent", json={}).status_code == 500
    desk.close()
    assert "Silent" in records[0].failure and "whole" in records[0].failure and not desk.jobs


@pytest.mark.parametrize("source", ["prompt", "code"])
def test_an_empty_text_is_refused_as_the_field_it_came_in(tooled, monkeypatch, source):
    """It was called prompt, whatever its name in the body."""
    read = lambda values, model: ChatRequest(Request(), text=values[source], source=source)  # noqa: E731
    monkeypatch.setitem(ANSWERS, "/echo", (read, Silent))
    monkeypatch.setattr(Silent, "__abstractmethods__", frozenset())
    desk = ScriptedDesk([])
    with local(tooled, desk) as client:
        error = client.post("/echo", json={source: ""}).json()["error"]
    desk.close()
    assert error["param"] == source and error["message"] == f"{source}: it is empty: 0 tokens"


@pytest.mark.parametrize("kind, status", [(NotAvailable, 503), (Refused, 503), (DoesNotFit, 413)])
def test_an_error_says_what_it_can_without_a_path_and_the_operator_reads_all(kind, status):
    for message, told in (("tiny is gone", True), ("/Users/Jane Doe/models/a is gone", False), ("~/a is gone", False)):
        error = as_http_error(kind(message, "pull it"))
        later = of_failure(Failure(message, "pull it", kind.exit_code))
        assert (error.status, error.message, error.cause) == (later.status, later.message, later.cause)
        assert error.status == status and message in error.cause and (message in error.message) == told


@pytest.mark.parametrize("prompt", [["a", 5], [[5], "a", 5], [5, "a"], [[], {}], [None]])
def test_a_mixture_is_no_prompt(client, prompt):
    refused = client[0].post(TEXT, json={"prompt": prompt})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt"
