"""Tokens of thinking in the usage: exactly those until the thinking is closed."""

import json

import httpx
import pytest

import specdec_cli
from fakes.desk import ScriptedDesk, SequentialDesk
from fakes.server import serving
from specdec_cli.serve.model import Model

pytestmark = pytest.mark.slow  # a server that listens


ASKED = [{"role": "user", "content": "Hi"}]
DETAILS = {
    "/v1/chat/completions": ("completion_tokens_details", {"messages": ASKED}),
    "/v1/responses": ("output_tokens_details", {"input": "Hi", "reasoning": {"effort": "low"}}),
}


def reasoning(usage, path):
    return usage[DETAILS[path][0]]["reasoning_tokens"]


@pytest.mark.parametrize("path", DETAILS)
@pytest.mark.parametrize(
    "steps, expected",
    [(["a", "b\n", "</thi", "nk>", "\n", "The answer, with </think>"], 4), (["a", "b"], 2), (["</think>", "x"], 1)],
    ids=["closed", "never closed", "at once"],
)
def test_the_tokens_until_the_end_of_the_thinking_are_counted(thinking, path, steps, expected):
    desk = ScriptedDesk(["".join(steps)], steps=lambda text: steps)
    with serving(thinking, desk) as (url, _):
        answer = httpx.post(url + path, json=DETAILS[path][1], timeout=20).json()
    desk.close()
    assert reasoning(answer["usage"], path) == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_drafted_rounds_the_count_is_that_of_the_ids(tool_folders, seed):
    """Of a model with weights, whose rounds close the thinking anywhere in a draft; the same in a stream."""
    pair = specdec_cli.load(target=str(tool_folders[1]), draft=str(tool_folders[1]))
    model = Model.of(pair, specdec_cli.Request(k=3), 1)
    end = pair.text_tokens("</think>")[-1]
    desk, asked = SequentialDesk(pair), {"max_tokens": 60, "temperature": 1.0, "seed": seed, "specdec": True}
    body = {"messages": ASKED, **asked, "logit_bias": {str(end): 6, "0": -100, "1": -100, "2": -100}}
    with serving(model, desk) as (url, _):
        whole = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        lines = httpx.post(f"{url}/v1/chat/completions", json=streamed, timeout=60).text.splitlines()
    desk.close()
    ids = [token for round in whole["specdec"] for token in round["emitted"]]
    assert end in ids and reasoning(whole["usage"], "/v1/chat/completions") == ids.index(end) + 1 < len(ids)
    last = [json.loads(line[6:]) for line in lines if line.startswith("data: {")][-1]
    assert last["usage"]["completion_tokens_details"] == whole["usage"]["completion_tokens_details"]
