"""`model` names another pair that is here: it answers, with its own words, limits and template."""

import httpx
import pytest

import specdec_cli
from fakes.fill_model import fill_folder
from fakes.models import tiny_folder
from fakes.server import serving
from specdec_cli.errors import NotAvailable
from specdec_cli.models.fill import Fill, Gap
from specdec_cli.pairs.pair import Pair
from specdec_cli.request import Request
from specdec_cli.serve.desk import make_desk
from specdec_cli.serve.model import Model, shown
from specdec_cli.serve.switch import Switch

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
    model = Model.of(demo, Request(k=4), 1)
    switch = Switch(lambda: pairs, lambda pair: Request(k=0), 2)
    desk = make_desk(lambda: specdec_cli.load("demo"), idle_seconds=None, switch=load)
    with serving(model, desk, switch=switch) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        yield client
    desk.close()


def said(client, **body):
    reply = client.post("/v1/chat/completions", json={**ASKED, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


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


def test_a_pair_is_found_by_its_target_too(client, pairs):
    assert said(client, model=shown(pairs["fills"].target))["choices"] == said(client, model="fills")["choices"]


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


def test_a_name_that_is_not_here_is_a_404_with_those_that_are(client):
    refused = client.post("/v1/chat/completions", json={**ASKED, "model": "gpt-9"})
    assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"
    assert "'gpt-9' is not here; what is: demo, fills, tiny, gone" in refused.json()["error"]["message"].replace(
        '"', "'"
    )
    assert client.get("/v1/models/gpt-9").status_code == 404


@pytest.mark.parametrize("stream", [False, True])
def test_a_pair_that_fails_to_load_answers_with_its_two_lines_and_the_next_is_well(client, stream):
    refused = client.post("/v1/chat/completions", json={**ASKED, "model": "tiny", "stream": stream})
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "tiny was removed; specdec pull tiny")
    assert said(client)["choices"][0]["message"]["content"]


def test_a_pair_whose_files_are_gone_says_so_before_anything_is_let_go(client):
    before = client.get("/health").json()
    refused = client.post("/v1/chat/completions", json={**ASKED, "model": "gone"})
    assert refused.status_code == 503 and "no folder" in refused.json()["error"]["message"]
    assert client.get("/health").json() == before


def test_without_the_option_only_the_server_s_own_answers(model, desk):
    with serving(model, desk) as (url, _):
        refused = httpx.post(f"{url}/v1/chat/completions", json={**ASKED, "model": "fills"})
        assert refused.status_code == 404 and refused.json()["error"]["message"].endswith("what is: demo")
        assert [one["id"] for one in httpx.get(f"{url}/v1/models").json()["data"]] == ["demo"]
