"""`specdec serve --print-config`: stdout is what goes into a file, and nothing is loaded."""

import json
import tomllib

import pytest

from specdec_cli.apps.serve.clients import CLIENTS


def test_stdout_is_the_file_and_the_rest_is_said_beside_it(specdec):
    code, out, err = specdec("serve", "-p", "demo", "--print-config", "codex", "--port", 9000)
    found = tomllib.loads(out)
    assert (code, found["model"], found["model_context_window"]) == (0, "demo", 1024)
    assert found["model_providers"]["specdec"]["base_url"] == "http://127.0.0.1:9000/v1"
    place, warning, *_ = err.splitlines()
    assert (
        place == "this goes into ~/.codex/specdec.config.toml (mkdir -p ~/.codex before); then codex --profile specdec"
    )
    assert warning.startswith("codex will say that it has no metadata for demo")


def test_options_of_the_server_change_what_is_printed(specdec, monkeypatch):
    monkeypatch.setenv("SPECDEC_API_KEY", "secret")
    code, out, _ = specdec(
        "serve", "-p", "demo", "--print-config", "opencode", "--host", "0.0.0.0", "--max-context", 512
    )
    provider = json.loads(out)["provider"]["specdec"]
    assert (code, provider["options"]["apiKey"]) == (0, "{env:SPECDEC_API_KEY}") and "secret" not in out
    assert provider["options"]["baseURL"] == "http://127.0.0.1:8040/v1"
    assert provider["models"]["demo"]["limit"]["context"] == 512
    assert provider["models"]["demo"]["tool_call"] is True


@pytest.mark.parametrize("name", CLIENTS)
def test_no_weight_is_read_for_it(specdec, monkeypatch, name):
    monkeypatch.setattr("specdec_cli.session.load.load_weights", None)
    assert specdec("serve", "-p", "demo", "--print-config", name)[0] == 0


def test_what_the_server_would_refuse_is_refused_here_too(specdec):
    assert specdec.refused("serve", "-p", "demo", "--print-config", "zed", "--host", "0.0.0.0")[0] == 2
    code, message, _ = specdec.refused("serve", "-p", "demo", "--print-config", "zed", "--port", 0)
    assert (code, message) == (2, "--print-config zed needs the port that clients will find")
    assert specdec.refused("serve", "--print-config", "zed", "-p", "none-such")[0] == 3
