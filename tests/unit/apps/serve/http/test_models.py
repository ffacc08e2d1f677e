"""The list of models, in the dialect of whoever asks for it."""

from datetime import UTC, datetime

import anthropic
import openai
import pytest

from fakes.desk import ScriptedDesk
from fakes.server import LOCAL, local

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.fixture
def client(tooled):
    desk = ScriptedDesk([])
    with local(tooled, desk, key="secret") as client:
        client.headers["x-api-key"] = "secret"
        yield client
    desk.close()


def test_anthropic_s_client_reads_names_and_times_and_openai_s_what_it_read_before(client, tooled):
    """Whoever asked was given OpenAI's list: `display_name` and `created_at` were None."""
    claude = anthropic.Anthropic(base_url=LOCAL, api_key="secret", max_retries=0, http_client=client)
    (listed,), one = claude.models.list(), claude.models.retrieve(tooled.name)
    assert listed == one and (one.type, one.id, one.display_name) == ("model", tooled.name, tooled.name)
    assert one.created_at == datetime.fromtimestamp(tooled.since, UTC) and one.lifecycle == "active"
    page = client.get("/v1/models", headers=VERSION).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, tooled.name, tooled.name)
    gpt = openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="secret", max_retries=0, http_client=client)
    assert [(model.id, model.object) for model in gpt.models.list()] == [(tooled.name, "model")]


@pytest.mark.parametrize("more, status", [({}, 404), ({"x-api-key": "wrong"}, 401), ({"Host": "evil.example"}, 403)])
def test_what_is_refused_there_is_refused_in_the_same_dialect(client, more, status):
    refused = client.get("/v1/models/none", headers={**VERSION, **more})
    assert (refused.status_code, refused.json()["type"]) == (status, "error")
    refused = client.get("/v1/models/none", headers=more)
    assert (refused.status_code, {*refused.json()}) == (status, {"error"})


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/models//"])
def test_a_model_without_a_name_is_none(client, path):
    """`/v1/models/` was the server's own model."""
    missing = client.get(path)
    assert missing.status_code == 404 and "there is at /v1/models" in missing.json()["error"]["message"]
