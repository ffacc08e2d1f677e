"""What clients read beside the words: sums, thinking counted, ends of lines and streams, addresses where nothing is."""

import json

import pytest

from fakes.desk import ScriptedDesk
from fakes.server import local
from fakes.tool_model import tool_model
from specdec_cli.apps.serve.http.errors import to_json

CHAT, TEXT, CLAUDE = "/v1/chat/completions", "/v1/completions", "/v1/messages"
ASKED = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi", "max_tokens": 8}
COUNTED = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def said(tooled):
    """Asks a model that always says `It is so.` in three pieces."""
    desk = ScriptedDesk(["It is so."] * 20, steps=lambda text: ["It ", "is ", "so."])
    with local(tooled, desk) as client:
        yield lambda path, body: client.post(path, json=body)
    desk.close()


def chunks(reply):
    """The data of a stream's events, in order."""
    return [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("n", [1, 3])
def test_the_prompt_is_counted_once_however_many_answers_there_are(said, path, n):
    whole, alone = said(path, {**ASKED, "n": n}).json(), said(path, ASKED).json()["usage"]
    assert [one["index"] for one in whole["choices"]] == list(range(n))
    assert whole["usage"]["prompt_tokens"] == alone["prompt_tokens"] > 0
    assert whole["usage"]["completion_tokens"] == n * alone["completion_tokens"]
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + n * alone["completion_tokens"]
    streamed = json.loads(chunks(said(path, {**COUNTED, "n": n}))[-2])
    assert streamed["usage"] == whole["usage"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_ends_with_done_once_and_the_sums_stand_before_it(said, path, n):
    found = chunks(said(path, {**COUNTED, "n": n}))
    assert found[-1] == "[DONE]" and found.count("[DONE]") == 1
    *pieces, sums = map(json.loads, found[:-1])
    assert sums["choices"] == [] and sums["usage"]["total_tokens"] > 0
    assert pieces and all(one["choices"] and "usage" in one and one["usage"] is None for one in pieces)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_who_did_not_ask_for_sums_hears_nothing_of_them(said, path):
    found = chunks(said(path, {**ASKED, "stream": True}))
    assert found[-1] == "[DONE]" and not any("usage" in json.loads(one) for one in found[:-1])


def test_thinking_ends_with_a_signature_as_anthropic_s_does(thinking):
    desk = ScriptedDesk(["I wonder.</think>\n\nYes."], steps=lambda text: [text[:4], text[4:]])
    with local(thinking, desk) as client:
        reply = client.post(CLAUDE, json={**ASKED, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 9}})
    desk.close()
    events = [json.loads(one) for one in chunks(reply)]
    blocks = [
        (one["type"], one.get("delta", {}).get("type")) for one in events if one["type"].startswith("content_block_")
    ]
    end = blocks.index(("content_block_stop", None))
    assert blocks[end - 1] == ("content_block_delta", "signature_delta")
    assert blocks.count(blocks[end - 1]) == 1 and ("content_block_delta", "text_delta") in blocks[end:]


@pytest.mark.parametrize(
    "drafter, k",
    [("model", "auto"), ("model", 4), ("mtp", "auto"), ("none", 0), ("model", 0), ("ngram", 4), ("auto", 4)],
)
def test_a_prediction_is_of_use_or_counts_as_nothing_whatever_the_operator_chose(tool_folders, drafter, k):
    """It was a 400 with words about --drafter, of which no client knows."""
    desk = ScriptedDesk(["ok"])
    with local(tool_model(tool_folders[0], drafter=drafter, k=k), desk) as client:
        reply = client.post(CHAT, json={**ASKED, "prediction": {"type": "content", "content": "It is so."}})
        assert reply.status_code == 200, reply.text
    desk.close()
    details = reply.json()["usage"]["completion_tokens_details"]
    assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (0, 0)
    assert bool(desk.jobs[0].job.request.predict) == (drafter != "mtp" and (drafter != "model" or k == 0))


@pytest.mark.parametrize("type", ["application/json", "application/x-www-form-urlencoded", None])
@pytest.mark.parametrize(
    "path, way_on",
    [
        ("/api/pull", "specdec pull"),
        ("/api/blobs/sha256:0", "neither made nor sent"),
        ("/api/embed", "embeddings are not made here"),
        ("/api/none", "chat, generate, tags, show, ps and version"),
        ("/v1/chat/completions/", "there is at /v1/chat/completions"),
        ("/v1/messages/", "there is at /v1/messages"),
        ("/v1/files", ""),
        ("/", ""),
    ],
)
def test_where_nothing_is_a_404_or_405_says_so_whatever_came_and_names_the_way_on(tooled, type, path, way_on):
    """A request without a type was told 415, and one with a slash too many was sent on to http, behind TLS too."""
    desk = ScriptedDesk([])
    with local(tooled, desk, page={"/": b""}) as client:
        reply = client.post(path, content=b"{}", headers={"Content-Type": type} if type else {}, follow_redirects=False)
    desk.close()
    assert reply.status_code == (405 if path == "/" else 404), reply.text
    error = reply.json()["error"]
    assert way_on in (error if path.startswith("/api/") else error["message"])


THINKS = [{"role": "user", "content": "Hi"}]


DETAILS = {
    "/v1/chat/completions": ("completion_tokens_details", {"messages": THINKS}),
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
    with local(thinking, desk) as client:
        answer = client.post(path, json=DETAILS[path][1]).json()
    desk.close()
    assert reasoning(answer["usage"], path) == expected


ENDS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and len(f"a{chr(code)}b".splitlines()) > 1]
ENDED = "a" + "b".join(ENDS) + "c"


STREAMS = {
    "/api/chat": {},
    "/api/generate": {"prompt": "Hi"},
    "/v1/chat/completions": {},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"max_tokens": 99},
}


def texts_of(value):
    """Every text in it."""
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in texts_of(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_has_one_object_a_line_whatever_the_answer_holds(tooled, path):
    """ollama's Python package cut lines at U+2028, and failed at the half of an object."""
    desk, user = ScriptedDesk([ENDED], steps=list), [{"role": "user", "content": "Hi"}]
    with local(tooled, desk) as client:
        reply = client.post(path, json={"stream": True, "messages": user, **STREAMS[path]})
    desk.close()
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if not line.startswith("event: ")]
    said = "".join(text for line in lines if line not in ("", "[DONE]") for text in texts_of(json.loads(line)))
    assert len(ENDS) > 8 and all(end in said for end in ENDS)


def test_json_is_one_line_and_says_the_same():
    assert to_json([ENDED, "é"]).decode().splitlines() == [to_json([ENDED, "é"]).decode()]
    assert json.loads(to_json([ENDED, "é"])) == [ENDED, "é"] and "é".encode() in to_json(["é"])
