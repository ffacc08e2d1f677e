"""Which models there are, in the dialect of whoever asks; and `model` names another pair that is here: it answers."""

import json
from datetime import UTC, datetime

import anthropic
import openai
import pytest

import specdec_cli
from fakes.models import FILLS, tiny_folder
from fakes.server import LOCAL, local
from specdec_cli.apps.serve.model import Switch
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.request import Request
from specdec_cli.models.fill import Fill, Gap
from specdec_cli.pairs.pair import Pair, PairSpec

VERSION = {"anthropic-version": "2023-06-01"}


def test_anthropic_s_client_reads_names_and_times_and_openai_s_what_it_read_before(asked, tooled):
    """Whoever asked was given OpenAI's list: `display_name` and `created_at` were None."""
    claude = anthropic.Anthropic(base_url=LOCAL, api_key="none", max_retries=0, http_client=asked[0])
    (listed,), one = claude.models.list(), claude.models.retrieve(tooled.name)
    assert listed == one and (one.type, one.id, one.display_name) == ("model", tooled.name, tooled.name)
    assert one.created_at == datetime.fromtimestamp(tooled.since, UTC) and one.lifecycle == "active"
    page = asked[0].get("/v1/models", headers=VERSION).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, tooled.name, tooled.name)
    gpt = openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", max_retries=0, http_client=asked[0])
    assert [(model.id, model.object) for model in gpt.models.list()] == [(tooled.name, "model")]


@pytest.mark.parametrize("more, status", [({}, 404), ({"x-api-key": "wrong"}, 401), ({"Host": "evil.example"}, 403)])
def test_what_is_refused_there_is_refused_in_the_same_dialect(scripted, more, status):
    client, _ = scripted(key="secret")
    client.headers["x-api-key"] = "secret"
    refused = client.get("/v1/models/none", headers={**VERSION, **more})
    assert (refused.status_code, refused.json()["type"]) == (status, "error")
    refused = client.get("/v1/models/none", headers=more)
    assert (refused.status_code, {*refused.json()}) == (status, {"error"})


ASKED = {"messages": [{"role": "user", "content": "Sort a list."}], "max_tokens": 12, "temperature": 0}
BROKEN = ("cut", "torn", "empty", "foreign", "gone")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """One that can be loaded, one whose loading is refused, and others that are broken, each in its own way."""
    root = tmp_path_factory.mktemp("pairs of Jane Doe")
    folders = {name: tiny_folder(root / name, **FILLS) for name in ("fills", "refused", *BROKEN[:-1])}
    weights = folders["cut"] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (folders["torn"] / "config.json").write_text("{")
    (folders["empty"] / "model.safetensors").unlink()
    config = folders["foreign"] / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "foreign"}))
    return {name: Pair(name, str(folder), None) for name, folder in {**folders, "gone": root / "gone"}.items()}


@pytest.fixture(scope="module")
def switching(pairs, pair, model):
    """(a client of a server that began with the demo pair, its records)."""

    def load(name):
        if name == "refused":
            raise NotAvailable("it was removed", "specdec pull it")
        return specdec_cli.load(pairs[name]) if name else pair

    switch = Switch(lambda: {name: PairSpec(pair) for name, pair in pairs.items()}, lambda spec: Request(k=0), 2)
    desk, records = Scheduler(load, SchedulerOptions(idle_seconds=None)), []
    with local(model, desk, records, switch=switch) as client:
        yield client, records
    desk.close()


ASKS = {
    "/v1/chat/completions": ASKED,
    "/v1/completions": {"prompt": "a", "max_tokens": 4},
    "/v1/responses": {"input": "a", "max_output_tokens": 16},
    "/v1/messages": ASKED,
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 4},
    "/v1/messages/count_tokens": {"messages": ASKED["messages"]},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [5]},
    "/apply-template": {"messages": ASKED["messages"]},
}
LOADS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/infill")


def said(switching, **body):
    reply = switching[0].post("/v1/chat/completions", json={**ASKED, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.slow  # a model's own answers
def test_the_pair_that_is_named_answers_with_its_own_words_marks_and_limits_and_the_first_one_after_it(
    switching, pairs
):
    """`/props` told the first pair's context of every one, so that an editor filled another's beyond its end."""
    client, _ = switching
    listed = client.get("/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["demo", *pairs]
    assert all(one["object"] == "model" and one["created"] and one["owned_by"] for one in listed)
    assert client.get("/v1/models/fills").json()["meta"]["n_ctx_train"] == 1024
    demo, other, fills = said(switching, model="demo"), said(switching, model="fills"), specdec_cli.load(pairs["fills"])
    own = list(fills.session().reply(fills.message_tokens(ASKED["messages"]), max_tokens=12, temperature=0))[-1]
    assert other["choices"][0]["message"]["content"] == own.text and other["model"] == "fills"
    assert client.get("/health").json()["model"] == "fills"
    props = {name: client.get("/props", params=name and {"model": name}).json() for name in ("", "demo", "fills")}
    assert props[""] == props["demo"] and props["demo"]["chat_template"] != props["fills"]["chat_template"]
    assert [props[name]["is_sleeping"] for name in ("demo", "fills")] == [True, False]
    assert client.get("/props?model=none").status_code == 404
    text = "def f(x):"
    ids = client.post("/tokenize", json={"content": text, "model": "fills"}).json()["tokens"]
    assert len(ids) == len(text) != len(client.post("/tokenize", json={"content": text}).json()["tokens"])
    gap = ASKS["/infill"]
    assert client.post("/infill", json=gap).status_code == 400
    filled = client.post("/infill", json={**gap, "model": "fills"}).json()
    assert filled["tokens_evaluated"] == len(Fill.of(fills.tokenizer).prompt(Gap("a", "b")).tokens)
    long = client.post("/v1/completions", json={"prompt": "x" * 1500, "model": "fills"})
    assert long.status_code == 400 and "1500 tokens > 1023" in long.json()["error"]["message"]
    assert said(switching)["choices"] == demo["choices"] == said(switching, model="default")["choices"]
    assert client.get("/health").json()["model"] == "demo"


# Every way of being broken where weights are needed, and every endpoint with one of each sort.
UNLOADABLE = [
    *((name, LOADS[0], stream) for name in (*BROKEN, "refused") for stream in (False, True)),
    *((name, path, False) for name in ("cut", "torn") for path in ASKS if path != LOADS[0]),
]


@pytest.mark.slow
def test_no_client_hears_where_a_pair_lies_that_cannot_be_loaded_and_the_operator_does(switching, pairs):
    client, records = switching
    for name, path, stream in UNLOADABLE:
        records.clear()
        refused = client.post(path, json={**ASKS[path], "model": name, "stream": stream})
        if name in ("cut", "foreign") and path not in LOADS:
            assert refused.status_code == 200  # its weights are not needed
            continue
        assert refused.status_code == 503 and "Jane" not in refused.text
        told = json.dumps(refused.json(), ensure_ascii=False)
        if name == "refused":
            assert refused.json()["error"]["message"] == "it was removed; specdec pull it"
        else:
            assert "the server's log says" in told and "/" not in told.replace("organisation/name", "")
            assert pairs[name].target in records[0].failure
    assert said(switching)["choices"][0]["message"]["content"]
