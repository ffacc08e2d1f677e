"""Calls of Llama 3, Gemma 3 and gpt-oss over HTTP: read in every dialect, whole and streamed, and forced."""

import json

import pytest
from tokenizers import AddedToken

from fakes.desk import ScriptedDesk
from fakes.models import TINY, byte_tokenizer, tiny_folder, write_tokenizer
from fakes.server import local
from specdec_cli import Request, load
from specdec_cli.models.tokenizer import Tokenizer
from specdec_cli.pairs.pair import Pair
from specdec_cli.serve.model import Model
from specdec_cli.serve.scheduler import Scheduler, SchedulerOptions

TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.tool_calls %}%s{% endif %}{{ m.content }}"
TURNS += "{{ '<|im_end|>\n' }}{% endfor %}"
START = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
ONE = "{% if m.tool_calls | length != 1 %}{{ raise_exception('single tool-calls') }}{% endif %}"
CALLED = "{{ m.tool_calls[0].function | tojson }}"
LLAMA = "{% if tools %}{{ 'Respond with \"parameters\": dictionary of argument name' + (tools | tojson) }}{% endif %}"
TEMPLATES = {
    "llama": LLAMA + TURNS.replace("%s", ONE + CALLED) + START,
    "gemma": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must "
    "alternate') }}{% endif %}{% endfor %}" + TURNS.replace("%s", "") + START,
    "harmony": "{{ tools | tojson if tools else '' }}" + TURNS.replace("%s", CALLED) + START,
}
SAID = {
    "llama": '{"name": "look", "parameters": {"n": 3}}; {"name": "look", "parameters": {"n": 4}}',
    "gemma": '```json\n{"name": "look", "parameters": {"n": 3}}\n{"name": "look", "parameters": {"n": 4}}\n```',
    "harmony": "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.look "
    '<|constrain|>json<|message|>{"n": 3}<|call|>',
}
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
SCHEMA = {"type": "object", "properties": {"n": {"enum": [3, 4]}}, "required": ["n"], "additionalProperties": False}
LOOK = {"name": "look", "description": "Look up.", "parameters": SCHEMA}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": LOOK}]}
CLAUDE = {"max_tokens": 99, "messages": CHAT["messages"], "tools": [{"name": "look", "input_schema": SCHEMA}]}
CODEX = {"input": "Hi", "tools": [{"type": "function", **LOOK}]}


def folder_of(folder, family):
    tokenizer = byte_tokenizer()
    if family == "harmony":
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in HARMONY])
    config = TINY | {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 8192}
    tiny_folder(folder, config, seed=5)
    write_tokenizer(folder, tokenizer, chat_template=TEMPLATES[family])
    return folder


@pytest.fixture(scope="module", params=TEMPLATES)
def family(request, tmp_path_factory):
    """(its name, the folder of a tiny model of it)."""
    return request.param, folder_of(tmp_path_factory.mktemp("forms") / "m", request.param)


@pytest.fixture
def served(family):
    """(the family's name, what posts, the last prompt)."""
    name, folder = family
    tokenizer = Tokenizer.load(folder, "m", {"eos_token_id": [2, 0]})
    desk = ScriptedDesk([SAID[name]] * 9, steps=lambda text: [*text])
    with local(Model("m", "m", None, tokenizer, tokenizer.size, 8192, Request(), 1), desk) as client:
        yield name, client, lambda: "".join(map(tokenizer.piece, desk.jobs[-1].job.prompt))
    desk.close()


@pytest.mark.parametrize("stream", [False, True])
def test_calls_are_read_in_every_dialect(served, stream):
    name, client, _ = served
    wanted = [{"n": 3}] if name == "harmony" else [{"n": 3}, {"n": 4}]
    answers = [client.post(path, json={**body, "stream": stream}) for path, body in PATHS]
    assert [answer.status_code for answer in answers] == [200] * 3, [answer.text for answer in answers]
    if stream:
        for answer in answers:
            assert "look" in answer.text and "<|channel|>" not in answer.text and "parameters\\" not in answer.text
        return
    (choice,) = answers[0].json()["choices"]
    calls = [one["function"] for one in choice["message"]["tool_calls"]]
    assert [json.loads(one["arguments"]) for one in calls] == wanted and choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"].get("reasoning_content") == ("Hm" if name == "harmony" else None)
    used = [block["input"] for block in answers[1].json()["content"] if block["type"] == "tool_use"]
    assert used == wanted and answers[1].json()["stop_reason"] == "tool_use"
    items = [item["arguments"] for item in answers[2].json()["output"] if item["type"] == "function_call"]
    assert [*map(json.loads, items)] == wanted


PATHS = (("/v1/chat/completions", CHAT), ("/v1/messages", CLAUDE), ("/v1/responses", CODEX))


def test_two_calls_of_a_turn_and_their_results_are_in_the_next_prompt(served):
    name, client, prompt = served
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"n": n})}}
        for n in (3, 4)
    ]
    results = [{"role": "tool", "tool_call_id": f"call_{n}", "content": f"result {n}"} for n in (3, 4)]
    messages = [*CHAT["messages"], {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    answer = client.post("/v1/chat/completions", json={**CHAT, "messages": messages})
    assert answer.status_code == 200, answer.text
    text = prompt()
    assert all(words in text for words in ("result 3", "result 4", '"n": 3', '"n": 4')), text
    assert text.index("result 3") < text.index("result 4")
    if name != "gemma":
        assert text.index('"n": 3') < text.index("result 3") < text.index('"n": 4')
    else:
        assert "You have access to functions" in text


@pytest.mark.parametrize("k", [0, 4])
def test_a_forced_call_is_always_one(family, k):
    """Control: the same model without being forced says no call."""
    _, folder = family
    pair = load(Pair("p", str(folder), None), drafter="ngram")
    desk = Scheduler(lambda: pair, SchedulerOptions(idle_seconds=None))
    with local(Model.of(pair, Request(k=k, drafter="ngram" if k else "none"), 1), desk) as client:
        body = {**CHAT, "max_tokens": 120, "temperature": 1, "seed": 3, "parallel_tool_calls": False}
        free = client.post("/v1/chat/completions", json=body).json()["choices"][0]
        forced = client.post("/v1/chat/completions", json={**body, "tool_choice": "required"})
    desk.close()
    assert forced.status_code == 200, forced.text
    (choice,) = forced.json()["choices"]
    assert "tool_calls" not in free["message"]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) in ({"n": 3}, {"n": 4}) and choice["finish_reason"] == "tool_calls"
