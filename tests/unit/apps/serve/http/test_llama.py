"""llama.cpp's small endpoints, the metrics, and what speculation did for a request."""

import json
import re

import pytest

from specdec_cli.core.events import from_dict
from specdec_cli.core.request import Request

pytestmark = pytest.mark.slow  # a model's own answers
ASKED = [{"role": "user", "content": "Return the lines of a file."}]


def answered(client, path="/v1/chat/completions", **body):
    reply = client.post(path, json={"messages": ASKED, "max_tokens": 24, "temperature": 0, **body})
    assert reply.status_code == 200, reply.text
    return reply


def chunks_of(reply):
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


def test_text_becomes_ids_and_ids_text(client, pair):
    ids = client.post("/tokenize", json={"content": "def f(x):"}).json()["tokens"]
    assert ids == pair.text_tokens("def f(x):")
    assert client.post("/detokenize", json={"tokens": ids}).json() == {"content": "def f(x):"}
    assert client.post("/detokenize", json={"tokens": [99_999]}).status_code == 400


def test_timings_are_those_of_the_stats(client, pair):
    asked = {"max_tokens": 32}
    timings = answered(client, **asked).json()["timings"]
    request = Request(k=4, max_tokens=32, sampling={"temperature": 0})
    stats = list(pair.session().reply(pair.message_tokens(ASKED), request))[-1].stats
    assert timings["cache_n"] + timings["prompt_n"] == 18 and timings["predicted_n"] == stats["emitted_tokens"]
    assert (
        timings["draft_n"] > timings["draft_n_accepted"] > 0
        and timings["prompt_ms"] > 0
        and timings["predicted_per_second"] > 0
    )
    streamed = chunks_of(answered(client, **asked, stream=True, stream_options={"include_usage": True}))
    assert streamed[-1]["choices"] == [] and streamed[-1]["usage"]["completion_tokens"] == stats["emitted_tokens"]
    assert streamed[-2]["timings"] == streamed[-1]["timings"] and streamed[-1]["timings"]["cache_n"] > 0
    assert streamed[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == streamed[-1]["timings"]["cache_n"]


def test_rounds_are_shown_to_whoever_asks_and_to_nobody_else(client):
    path = "/v1/chat/completions"
    whole = answered(client, path, specdec=True).json()
    rounds = [from_dict(values) for values in whole["specdec"]]
    assert (
        whole["choices"][0]["message"]["content"].startswith("".join(round.text for round in rounds))
        and len(rounds) > 2
    )
    streamed = chunks_of(answered(client, path, specdec=True, stream=True))
    told = [from_dict(chunk["specdec"]) for chunk in streamed if "specdec" in chunk]
    shown = [event for event in told if event.event == "round"]
    assert [round.round.emitted for round in shown] == [round.round.emitted for round in rounds]
    assert "specdec" not in answered(client, path).json()
    assert not any("specdec" in chunk for chunk in chunks_of(answered(client, path, stream=True)))


def test_the_metrics_count_under_llama_cpp_s_names(client, desk):
    before = desk.status().totals
    timings = answered(client, max_tokens=32).json()["timings"]
    totals, rounds = desk.status().totals, desk.status().totals.rounds
    read = totals.prompt_tokens - totals.cached_tokens - before.prompt_tokens + before.cached_tokens
    assert read == timings["prompt_n"]
    assert rounds.emitted_tokens - before.rounds.emitted_tokens == timings["predicted_n"]
    assert rounds.draft_n - before.rounds.draft_n == timings["draft_n"]
    assert rounds.draft_n_accepted - before.rounds.draft_n_accepted == timings["draft_n_accepted"]
    assert 1e3 * (totals.prefill_seconds - before.prefill_seconds) == pytest.approx(timings["prompt_ms"], abs=1e-3)
    text = client.get("/metrics").text
    values = dict(re.findall(r"^(llamacpp:\S+) (\S+)$", text, re.M))
    assert float(values["llamacpp:spec_decode_num_draft_tokens_total"]) == rounds.draft_n
    assert float(values["llamacpp:spec_decode_num_accepted_tokens_total"]) == rounds.draft_n_accepted
    by_position = [
        float(value)
        for name, value in values.items()
        if name.startswith("llamacpp:spec_decode_num_accepted_tokens_per")
    ]
    assert sum(by_position) == rounds.draft_n_accepted and by_position == sorted(by_position, reverse=True)
    assert float(values["llamacpp:requests_processing"]) == 0
