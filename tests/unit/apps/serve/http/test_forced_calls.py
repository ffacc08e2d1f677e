"""A model that would never call is forced to: the grammar of each form over the real loop, drafted and plain."""

import json

import pytest
from tokenizers import AddedToken

from fakes.models import TINY, byte_tokenizer, tiny_folder, write_tokenizer
from fakes.server import local
from fakes.serving import model_of
from specdec_cli import Request, load
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.pairs.pair import Pair

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
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>")
SCHEMA = {"type": "object", "properties": {"n": {"enum": [3, 4]}}, "required": ["n"], "additionalProperties": False}
LOOK = {"name": "look", "description": "Look up.", "parameters": SCHEMA}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": LOOK}]}


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


@pytest.mark.parametrize("k", [0, 4])
def test_a_forced_call_is_always_one(family, k):
    """Control: the same model without being forced says no call."""
    _, folder = family
    pair = load(Pair("p", str(folder), None), drafter="ngram")
    desk = Scheduler(lambda: pair, SchedulerOptions(idle_seconds=None))
    with local(model_of(pair, Request(k=k, drafter="ngram" if k else "none"), 1), desk) as client:
        body = {**CHAT, "max_tokens": 120, "temperature": 1, "seed": 3, "parallel_tool_calls": False}
        free = client.post("/v1/chat/completions", json=body).json()["choices"][0]
        forced = client.post("/v1/chat/completions", json={**body, "tool_choice": "required"})
    desk.close()
    assert forced.status_code == 200, forced.text
    (choice,) = forced.json()["choices"]
    assert "tool_calls" not in free["message"]
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) in ({"n": 3}, {"n": 4}) and choice["finish_reason"] == "tool_calls"
