"""Ollama's /api: the same answers as in every dialect, an object a line; what cannot be honoured is refused by name."""

import json
import time
from datetime import datetime

import httpx
import pytest

from fakes.call_models import call_model
from fakes.desk import by_letters
from fakes.server import serving
from specdec_cli.apps.serve.http import reply
from specdec_cli.apps.serve.model import Model, Switch
from specdec_cli.core.request import Request
from specdec_cli.pairs.choose import choose
from specdec_cli.pairs.files import find
from specdec_cli.pairs.pair import Pair, PairSpec

ASKED = [{"role": "user", "content": "Return the lines of a file."}]
FUNCTION = {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.py"}}\n</tool_call>'
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


@pytest.fixture
def saying(scripted):
    """(a client, its desk): what a tool model says."""
    return scripted(*["It is so."] * 99, steps=by_letters)


def told(client, path="/api/chat", **body):
    """The objects of an answer: the lines of a stream, or the one whole."""
    answer = client.post(path, json={"messages": ASKED, **body})
    assert answer.status_code == 200, answer.text
    streams = body.get("stream") is not False
    kind = "application/x-ndjson" if streams else "application/json"
    assert answer.headers["content-type"] == kind and answer.text.endswith("\n") == streams
    return [json.loads(line) for line in answer.text.splitlines()]


def request_of(saying, path="/api/chat", **body):
    """The last job's request."""
    told(saying[0], path, **body)
    return saying[1].jobs[-1].job.request


def test_a_stream_is_an_object_a_line_and_says_what_the_whole_does(saying):
    *parts, last = told(saying[0])
    (whole,) = told(saying[0], stream=False)
    assert "".join(part["message"]["content"] for part in parts) == whole["message"]["content"] == "It is so."
    assert not any(part["done"] for part in parts) and last["message"]["content"] == "" and len(parts) == 3
    for end in (last, whole):
        assert (end["done"], end["done_reason"], end["model"], end["eval_count"]) == (True, "stop", "tool", 2)
        assert end["prompt_eval_count"] > 20 and all(type(end[name]) is int for name in DURATIONS)
        assert end["eval_duration"] == 10_000_000 and end["prompt_eval_duration"] == 1_000_000
        assert end["total_duration"] >= 0 and datetime.fromisoformat(end["created_at"]).tzinfo is not None


def test_a_prompt_is_a_message_or_a_text_and_its_answer_is_the_response(saying):
    *parts, last = told(saying[0], "/api/generate", prompt="Hi", system="Be brief.")
    chat = told(saying[0], messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert "".join(part["response"] for part in parts) == "It is so." and last["prompt_eval_count"] > 0
    (raw,) = told(saying[0], "/api/generate", prompt="Hi", raw=True, stream=False)
    first, second, third = (handle.job for handle in saying[1].jobs)
    assert first.prompt == second.prompt != third.prompt and chat[-1]["done"]
    assert third.raw and len(third.prompt) == raw["prompt_eval_count"] == 2


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_a_keep_alive_of_no_time_unloads_after_the_answer_or_at_once_without_a_prompt(saying, path):
    """It was accepted, and the model stayed: `ollama stop`, and whoever frees memory for another program."""
    client, desk = saying
    for value in (0, 0.0, "0", "0s", "0h0m0.0s", "0µs"):
        told(client, path, prompt="Hi", keep_alive=value)
        assert desk.jobs[-1].job.unloads and desk.jobs[-1].job.request.max_tokens > 0
        (answer,) = told(client, path, messages=[], keep_alive=value, stream=False)
        assert desk.jobs[-1].job.only_unloads and (answer["done"], answer["done_reason"]) == (True, "unload")
    for value in (-1, 5, "5m", "1h0m", "0.5s", "-1", None, "", "m", True, [0]):
        told(client, path, prompt="Hi", keep_alive=value)
        assert not desk.jobs[-1].job.unloads


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_without_a_prompt_the_model_is_loaded_and_nothing_said(saying, path):
    request = request_of(saying, path, messages=[], prompt="", format="json", keep_alive="5m")
    assert request.max_tokens == 0 and request.constraint is None
    (answer,) = told(saying[0], path, messages=[], keep_alive=-1, stream=False)
    assert answer["done_reason"] == "load"


def test_options_are_those_of_the_answer_and_of_the_runner_nothing_comes(saying):
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repeat_penalty": 1.1}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.25}
    runner = {"num_ctx": 8192, "num_gpu": 1, "use_mmap": True, "repeat_last_n": 64, "mirostat": 0, "typical_p": 1}
    given = {**sampling, **penalties, **runner, "seed": 7, "num_predict": 5, "stop": ["so"]}
    request = request_of(saying, options=given)
    wanted = {**sampling, **penalties, "repetition_penalty": 1.1}
    del wanted["repeat_penalty"]
    assert request.sampling == wanted
    assert (request.seed, request.max_tokens, request.stop, request.max_context) == (7, 5, ("so",), None)
    endless = {request_of(saying, options={"num_predict": number}).max_tokens for number in (-1, -2, None)}
    assert endless == {request_of(saying).max_tokens}


def test_a_format_is_a_constraint(saying):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    assert json.loads(request_of(saying, format=schema).constraint.text) == schema
    assert json.loads(request_of(saying, format="json").constraint.text) == {"type": "object"}
    assert request_of(saying, format="").constraint is None


def test_thinking_is_asked_for_and_told_beside_the_answer(thinking, scripted):
    client, desk = scripted(*["I wonder.</think>\n\nYes."] * 3, steps=by_letters, model=thinking)
    *parts, last = told(client, think=True)
    (whole,) = told(client, think="high", stream=False)
    told(client, think=False)
    first, second, third = (handle.job.prompt for handle in desk.jobs)
    assert "".join(part["message"].get("thinking", "") for part in parts) == whole["message"]["thinking"] == "I wonder."
    assert whole["message"]["content"] == "Yes." and last["done_reason"] == "stop" and first == second != third


def test_calls_have_objects_as_arguments_and_come_back_without_ids(tooled, scripted, tmp_path):
    """Where the calls had ids, a result was told as that of whichever call came first."""
    client, desk = scripted(CALL, CALL, "Done.", steps=by_letters)
    lines = told(client, tools=TOOLS)
    (whole,) = told(client, tools=TOOLS, stream=False)
    called = {"name": "read", "arguments": {"path": "a.py"}}
    calls = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert [call["function"] for call in calls + whole["message"]["tool_calls"]] == [called, called]
    said = {"role": "assistant", "content": "", "tool_calls": [{"function": called}]}
    told(client, messages=[*ASKED, said, {"role": "tool", "content": "text", "tool_name": "read"}], tools=TOOLS)
    prompt = tooled.text(desk.jobs[2].job.prompt)
    assert '"arguments": {"path": "a.py"}' in prompt and "<|im_start|>tool\ntext" in prompt
    model = call_model(tmp_path / "oss", "oss")
    client, desk = scripted(model=model)
    calls = [{"id": name[0], "function": {"name": name, "arguments": {}}} for name in ("read", "list")]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    for names in (("list", "read"), ("read", "")):
        results = [{"role": "tool", "content": name or "list", "tool_name": name} for name in names]
        told(client, messages=[*ASKED, said, *results], tools=TOOLS)
        prompt = model.text(desk.jobs[-1].job.prompt)
        for name in ("read", "list"):
            assert f'functions.{name} to=assistant<|channel|>commentary<|message|>"{name}"' in prompt


def test_a_picture_that_was_asked_about_before_is_told_of(saying, tooled):
    seen = {"role": "user", "content": "What is it?", "images": ["AAAA"]}
    told(saying[0], messages=[seen, {"role": "assistant", "content": "A cat."}, *ASKED])
    assert "[an image, which this model cannot see]" in tooled.text(saying[1].jobs[0].job.prompt)


def test_the_model_may_have_the_usual_tag_and_no_other(saying):
    assert told(saying[0], model="tool:latest")[0]["model"] == "tool:latest"
    other = saying[0].post("/api/chat", json={"model": "tool:8b", "messages": ASKED})
    assert other.status_code == 404 and "is not loaded" in other.json()["error"]


def test_what_is_here_is_told_as_ollama_does(scripted):
    """Swift's clients lost the whole list by a time without a fraction, others each model that lacked a field."""
    switch = Switch(lambda: {"other": PairSpec(Pair("other", "org/other", None))}, lambda spec: Request(k=0))
    model = Model.of(find(choose("demo", None, None)), Request(k=4), 1_700_000_000)
    client, desk = scripted(model=model, switch=switch)
    tag, other = client.get("/api/tags").json()["models"]
    (loaded,) = client.get("/api/ps").json()["models"]
    shown, older = (client.post("/api/show", json={key: "demo"}).json() for key in ("model", "name"))
    missing = client.post("/api/show", json={"model": "none"})
    version = client.get("/api/version").json()
    assert (tag["name"], tag["model"], tag["size"] > 100_000, len(tag["digest"])) == ("demo", "demo", True, 64)
    assert tag["modified_at"] == shown["modified_at"] == "2023-11-14T22:13:20.000000Z"
    assert tag["details"] == loaded["details"] == shown["details"]
    assert (other["name"], {*other["details"]}) == ("other", {*tag["details"]})
    assert (loaded["size_vram"], loaded["context_length"]) == (tag["size"], 1024)
    assert datetime.fromisoformat(loaded["expires_at"]).year > 2300
    desk.idle_seconds = 600.0
    (loaded,) = client.get("/api/ps").json()["models"]
    assert 590 < datetime.fromisoformat(loaded["expires_at"]).timestamp() - time.time() < 610
    family = shown["model_info"]["general.architecture"]
    sizes = [shown["model_info"][f"{family}.{name}_length"] for name in ("context", "embedding")]
    assert sizes == [1024, 192] and shown == older
    assert {"completion", "tools"} <= {*shown["capabilities"]} and "messages" in shown["template"]
    assert missing.status_code == 404 and "none" in missing.json()["error"]
    assert tuple(map(int, version["version"].split("."))) >= (0, 6, 4)  # Copilot's least


@pytest.mark.slow
def test_a_silent_stream_stays_alive_and_every_line_is_an_object(scripted, monkeypatch):
    monkeypatch.setattr(reply.ReplyResponse, "silence_seconds", 0.1)
    url, _ = scripted("ok", between=lambda handle: time.sleep(0.6), how=serving)
    lines = httpx.post(f"{url}/api/chat", json={"messages": ASKED}, timeout=20).content.splitlines()
    assert lines[0].startswith(b"  ") and [json.loads(line)["done"] for line in lines] == [False, True]
