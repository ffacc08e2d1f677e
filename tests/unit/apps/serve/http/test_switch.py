"""`model` names another pair that is here: it answers, with its own words, limits and template."""

import json

import pytest

import specdec_cli
from fakes.fill_model import fill_folder
from fakes.models import tiny_folder
from fakes.server import local
from fakes.serving import model_of
from specdec_cli.apps.serve.model import Switch
from specdec_cli.apps.serve.scheduler import Scheduler, SchedulerOptions
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.request import Request
from specdec_cli.models.fill import Fill, Gap
from specdec_cli.pairs.pair import Pair, PairSpec

pytestmark = pytest.mark.slow  # a model's own answers
ASKED = {"messages": [{"role": "user", "content": "Sort a list."}], "max_tokens": 12, "temperature": 0}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    fills, tiny = fill_folder(root / "fills"), tiny_folder(root / "tiny", seed=2)
    gone = Pair("gone", str(root / "gone"), None)
    return {"fills": Pair("fills", str(fills), None), "tiny": Pair("tiny", str(tiny), None), "gone": gone}


@pytest.fixture(scope="module")
def client(pairs):
    """A client of a server that began with the demo pair."""

    def load(name):
        if name == "tiny":
            raise NotAvailable("tiny was removed", "specdec pull tiny")
        return specdec_cli.load(pairs[name])

    demo = specdec_cli.load("demo")
    model = model_of(demo, Request(k=4), 1)
    switch = Switch(lambda: {name: PairSpec(pair) for name, pair in pairs.items()}, lambda spec: Request(k=0), 2)
    desk = Scheduler(lambda: specdec_cli.load("demo"), SchedulerOptions(idle_seconds=None), switch=load)
    with local(model, desk, switch=switch) as client:
        yield client
    desk.close()


def said(client, **body):
    reply = client.post("/v1/chat/completions", json={**ASKED, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


ASKS = {
    "/v1/chat/completions": ASKED,
    "/v1/completions": {"prompt": "a", "max_tokens": 4},
    "/v1/responses": {"input": "a", "max_output_tokens": 16},
    "/v1/messages": ASKED,
    "/v1/messages/count_tokens": {"messages": ASKED["messages"]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 4},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [5]},
    "/apply-template": {"messages": ASKED["messages"]},
}
LOADS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/infill")


def own(pair, **options):
    session = specdec_cli.load(pair).session()
    prompt = session.pair.message_tokens(ASKED["messages"])
    return list(session.reply(prompt, max_tokens=12, temperature=0, **options))[-1].text


def test_all_that_are_here_are_listed_and_the_server_s_own_comes_first(client):
    listed = client.get("/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["demo", "fills", "tiny", "gone"]
    assert all(one["object"] == "model" and one["created"] and one["owned_by"] for one in listed)
    assert client.get("/v1/models/fills").json()["meta"]["n_ctx_train"] == 1024


def test_the_pair_that_is_named_answers_and_the_first_one_after_it(client, pairs):
    demo = said(client, model="demo")
    other = said(client, model="fills")
    assert other["choices"][0]["message"]["content"] == own(pairs["fills"]) and other["model"] == "fills"
    assert client.get("/health").json()["model"] == "fills"
    assert said(client)["choices"] == demo["choices"] == said(client, model="default")["choices"]
    assert client.get("/health").json()["model"] == "demo"


def test_another_pair_s_tokenizer_marks_and_limits_are_its_own(client, pairs):
    text = "def f(x):"
    ids = client.post("/tokenize", json={"content": text, "model": "fills"}).json()["tokens"]
    assert len(ids) == len(text) != len(client.post("/tokenize", json={"content": text}).json()["tokens"])
    gap = {"input_prefix": "a", "input_suffix": "b", "n_predict": 4}
    assert client.post("/infill", json=gap).status_code == 400
    filled = client.post("/infill", json={**gap, "model": "fills"}).json()
    loaded = specdec_cli.load(pairs["fills"])
    assert filled["tokens_evaluated"] == len(Fill.of(loaded.tokenizer).prompt(Gap("a", "b")).tokens)
    long = client.post("/v1/completions", json={"prompt": "x" * 1500, "model": "fills"})
    assert long.status_code == 400 and "1500 tokens > 1023" in long.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_pair_that_fails_to_load_answers_with_its_two_lines_and_the_next_is_well(client, stream):
    refused = client.post("/v1/chat/completions", json={**ASKED, "model": "tiny", "stream": stream})
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "tiny was removed; specdec pull tiny")
    assert said(client)["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """(folder, client, records) of a server whose other pairs are broken, each in its own way."""
    root = tmp_path_factory.mktemp("pairs of Jane Doe")
    pairs = {name: Pair(name, str(fill_folder(root / name)), None) for name in ("cut", "torn", "empty", "foreign")}
    weights = root / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (root / "torn" / "config.json").write_text("{")
    (root / "empty" / "model.safetensors").unlink()
    config = root / "foreign" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "foreign"}))
    pairs["gone"] = Pair("gone", str(root / "gone"), None)
    demo, records = specdec_cli.load("demo"), []
    switch = Switch(lambda: {name: PairSpec(pair) for name, pair in pairs.items()}, lambda spec: Request(k=0), 2)
    options = SchedulerOptions(idle_seconds=None)
    desk = Scheduler(lambda: demo, options, switch=lambda name: specdec_cli.load(pairs[name]))
    with (
        local(model_of(demo, Request(k=4), 1), desk, records, switch=switch) as client,
    ):
        yield root, client, records
    desk.close()


# Every way of being broken where weights are needed, and every endpoint with one of each sort.
UNLOADABLE = [
    *((name, LOADS[0], stream) for name in ("cut", "torn", "empty", "foreign", "gone") for stream in (False, True)),
    *((name, path, False) for name in ("cut", "torn") for path in ASKS if path != LOADS[0]),
]


def test_no_client_hears_where_a_pair_lies_that_cannot_be_loaded_and_the_operator_does(broken):
    root, client, records = broken
    for name, path, stream in UNLOADABLE:
        records.clear()
        refused = client.post(path, json={**ASKS[path], "model": name, "stream": stream})
        if name in ("cut", "foreign") and path not in LOADS:
            assert refused.status_code == 200  # its weights are not needed
            continue
        assert refused.status_code == 503 and not any(part in refused.text for part in (str(root), "Jane", root.name))
        said = json.dumps(refused.json(), ensure_ascii=False)
        assert "the server's log says" in said and "/" not in said.replace("organisation/name", "")
        assert str(root / name) in records[0].failure
    assert client.post("/tokenize", json={"content": "a"}).status_code == 200
