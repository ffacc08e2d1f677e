"""Whose each word of a stream is: every delta says it, of thinking, of answers, and of what was drafted in vain."""

import json
from dataclasses import replace

import pytest

from fakes.server import local
from fakes.spoken import SpokenDesk
from fakes.ui_script import drafted

pytestmark = pytest.mark.slow  # a model's own answers
ASKED = {"messages": [{"role": "user", "content": "Return the lines of a file."}], "stream": True}
UNSAID = ("rejected", "discarded")


def chunks(client, **body):
    reply = client.post("/v1/chat/completions", json={**ASKED, **body})
    assert reply.status_code == 200, reply.text
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


def deltas(client, **body):
    return [choice["delta"] for chunk in chunks(client, specdec=True, **body) for choice in chunk["choices"]]


def said(delta):
    return "".join(text for fate, text in delta.get("specdec", ()) if fate not in UNSAID)


@pytest.mark.parametrize("more", [{"temperature": 0.8, "seed": 7}, {"stop": ["path)"]}])
def test_the_tokens_of_a_delta_join_to_its_text_and_count_as_the_rounds_do(client, more):
    told = chunks(client, specdec=True, max_tokens=40, **more)
    parts = [choice["delta"] for chunk in told for choice in chunk["choices"]]
    assert all(said(delta) == delta.get("content", "") for delta in parts)
    rounds = [chunk["specdec"] for chunk in told if chunk.get("specdec", {}).get("event") == "round"]
    unsaid = [text for delta in parts for fate, text in delta.get("specdec", ()) if fate in UNSAID]
    assert unsaid == [piece for round in rounds for piece in round["pieces"][round["accepted"] :]] != []


def test_nobody_else_is_told(client):
    told = chunks(client, max_tokens=9)
    assert not any("specdec" in part for chunk in told for part in [chunk, *(c["delta"] for c in chunk["choices"])])


# The tokens do not end where the tags do, and the stop token is not text.
THINKING = (
    drafted(0, [], 0, "Let"),
    drafted(1, [" me", " no"], 1, " see"),
    drafted(2, ["\n</think>\n\nA", "b"], 2, "c"),
    replace(drafted(3, ["x", "y"], 0, "<|im_end|>"), text=""),
)


def test_thinking_and_answer_each_say_whose_they_are(thinking):
    desk = SpokenDesk(THINKING)
    with local(thinking, desk) as client:
        parts = deltas(client, reasoning_effort="high")
    desk.close()
    thoughts = [pair for delta in parts if "reasoning_content" in delta for pair in delta["specdec"]]
    words = [pair for delta in parts if "reasoning_content" not in delta for pair in delta.get("specdec", ())]
    assert thoughts == [["plain", "Let"], ["accepted", " me"], ["rejected", " no"], ["correction", " see"]]
    assert words == [["accepted", "A"], ["accepted", "b"], ["bonus", "c"], ["rejected", "x"], ["discarded", "y"]]
