"""500 bodies that nobody should send: an error of the dialect or an answer, never a 500, never silence."""

import json
import random
from dataclasses import replace

import pytest

from fakes.desk import ScriptedDesk, SequentialDesk
from fakes.server import local

# fmt: off
FIELDS = (
    "model", "messages", "input", "prompt", "max_tokens", "max_output_tokens", "temperature", "top_p", "top_k", "seed",
    "stop", "stop_sequences", "n", "logprobs", "top_logprobs", "logit_bias", "tools", "tool_choice", "stream", "system",
    "response_format", "text", "reasoning", "reasoning_effort", "prediction", "stream_options", "thinking", "metadata",
    "content", "tokens", "instructions", "suffix", "echo", "best_of", "parallel_tool_calls", "chat_template_kwargs",
    "json_schema", "guided_json", "guided_regex", "guided_choice", "structured_outputs", "continue_final_message",
    "input_prefix", "input_suffix", "input_extra", "n_predict", "n_indent", "t_max_predict_ms", "response_fields",
)
# fmt: on
PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/tokenize", "/detokenize", "/apply-template"),
)
ODD = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        1e308,
        -5,
        2**70,
        0.5,
        "",
        "x",
        "\ud800",
        "\x00",
        "<|im_end|>",
        "a" * 3000,
        [],
        {},
    ),
    *([[]], [None], [1, "a"], {"type": "text"}, {"type": "json_schema"}, {"type": "json_object"}, {"type": "function"}),
    *([{"role": "user", "content": "hi"}], [{"role": "user"}], [{"role": "tool", "content": "x"}], [{"role": 7}]),
    *([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],),
    *([{"role": "assistant", "content": "hi"}], [{"role": "tool", "content": [{"type": "document", "source": 1}]}]),
    *([{"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]}], {"type": "allowed_tools", "tools": [1]}),
    *(["a", "b"], [[5], "a"], {"regex": "("}, {"choice": []}),
    *([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}], "content": None}],),
    *([{"type": "function", "function": {"name": "f", "parameters": {"type": 7}, "strict": True}}],),
    *({"type": "json_schema", "json_schema": {"schema": {"pattern": "(((((((a*)*)*)*)*)*)*)*b"}}}, {"5": 4, "x": 1}),
    *([{"type": "function_call_output", "call_id": "x", "output": 4}], {"effort": []}, {"include_usage": "yes"}),
)
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "content": "hi", "tokens": [5]}
MORE = {
    "/v1/responses": {"input": "hi"},
    "/v1/completions": {"prompt": "hi"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
}


def odd_body(luck, path):
    """A good body with some of its values replaced, one nested without end, or bytes that are no JSON."""
    kind = luck.random()
    if kind < 0.1:
        text = luck.choice(["", "{", "[]", "null", '"x"', "[" * 100_000, '{"a":' * 50_000, '{"n": ' + "9" * 9000 + "}"])
        return text.encode()
    if kind < 0.15:
        return luck.randbytes(luck.randint(1, 300))
    if kind < 0.2:
        return b'{"temperature": NaN, "seed": Infinity, "messages": [{"role": "user", "content": "\\ud800"}]}'
    body = {**ASKED, **MORE.get(path, {})}
    for name in luck.sample(FIELDS, luck.randint(1, 4)):
        body[name] = luck.choice(ODD)
    return json.dumps(body).encode()


def wrong(path, reply):
    """What is not as it should be; empty where it is."""
    if reply.status_code == 200:
        return ""
    if not 400 <= reply.status_code < 500:
        return "status"
    error = reply.json()["error"]
    if path.startswith("/v1/messages"):
        shaped = reply.json()["type"] == "error"
    else:
        shaped = isinstance(error["code"], int) if not path.startswith("/v1") else "param" in error
    inside = any(word in error["message"] for word in ("Traceback", ".py", "Error:", "/work", "site-packages"))
    return "" if shaped and error["message"] and not inside else "shape"


class Brief(SequentialDesk):
    """Two tokens are enough of any answer."""

    def submit(self, job, deliver):
        return super().submit(replace(job, request=replace(job.request, max_tokens=2)), deliver)


@pytest.mark.parametrize("path", PATHS)
def test_odd_bodies_are_answered_or_refused_in_the_shape_of_their_dialect(tooled, path):
    require_order(tooled, ScriptedDesk(["ok"] * 5000), path, 500 // len(PATHS) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_a_model_s_answers_to_odd_bodies_are_no_failures_either(model, pair, path):
    require_order(model, Brief(pair), path, 500 // len(PATHS) + 1)


def require_order(model, desk, path, bodies):
    """Every one of so many bodies has an answer as it should be; some are answered, and some refused."""
    luck = random.Random(path)
    found, statuses = [], set()
    with local(model, desk) as client:
        for _ in range(bodies):
            body = odd_body(luck, path)
            reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
            if problem := wrong(path, reply):
                found.append((problem, reply.status_code, body[:200], reply.text[:300]))
            statuses.add(reply.status_code)
        assert client.get("/health").status_code == 200
    desk.close()
    assert not found, found[:3]
    assert {200, 400} <= statuses, statuses
