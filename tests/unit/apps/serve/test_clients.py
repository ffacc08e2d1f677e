"""What other programs are told by `--print-config`: in its format, each names address, model, context and key."""

import json
import os
import subprocess
import tomllib

import pytest
import yaml

from specdec_cli.apps.serve.clients import CLIENTS, KEY, Address, notes

URL = "http://127.0.0.1:8040"
ODD = Address(URL, 'it\'s "odd" $HOME #1', 65_536)


def shell(text):
    """The variables that a shell has after it."""
    names = [line.split("=")[0].removeprefix("export ") for line in text.splitlines()]
    asked = "; ".join(f'printf "%s\\0" "${name}"' for name in names)
    command = ["sh", "-eu", "-c", f"{text}\n{asked}"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    return dict(zip(names, done.stdout.split("\0"), strict=False))


READERS = {"codex": tomllib.loads, "opencode": json.loads, "zed": json.loads}
READERS |= {"qwen-code": json.loads, "continue": yaml.safe_load, "llm": yaml.safe_load}


def parsed(name, to):
    return READERS.get(name, shell)(CLIENTS[name].write(to))


def leaves(value):
    """Every value inside."""
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in (key, *leaves(one))]
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, list) else [value]


@pytest.mark.slow  # a shell reads the texts that are for one
@pytest.mark.parametrize("name", CLIENTS)
def test_every_text_is_in_its_format_and_names_address_and_model(name):
    found = leaves(parsed(name, ODD))
    assert any(str(leaf) in (URL, f"{URL}/v1") for leaf in found)
    assert any(str(leaf).removeprefix("openai/").removeprefix("specdec/") == ODD.model for leaf in found)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_key_is_named_by_its_variable_and_never_printed_and_no_weight_is_read(specdec, monkeypatch, name):
    monkeypatch.setattr("specdec_cli.session.load.load_weights", None)
    for key in (None, "hunter2"):
        if key:
            monkeypatch.setenv(KEY, key)
        code, out, err = specdec("serve", "-p", "demo", "--print-config", name)
        assert code == 0 and "hunter2" not in out + err
        assert (KEY in out) == (key is not None and name not in ("zed", "llm"))
    assert KEY in err


def test_a_pair_that_agents_cannot_use_is_told_apart():
    small = notes("codex", Address(URL, "m", 1024, tools=False))
    assert "m's context (1024) is too small for an agent" in small[2] and "calls no functions" in small[3]
    assert Address(URL, "m", 65_536).answer_tokens == 8192
    assert len(notes("claude", Address(URL, "m", 65_536))) == len(notes("aider", Address(URL, "m", 1024))) == 1
    # Claude Code summarizes 13,000 tokens and an answer before the end.
    for name, tokens in {"opencode": 20_000, "claude": 20_000 + 13_000 + 8192}.items():
        assert [len(notes(name, Address(URL, "m", one))) for one in (tokens, tokens - 1)] == [1, 2]


def test_llm_finds_an_entry_of_its_list_and_keeps_the_key_itself():
    entry = {"model_id": "m", "model_name": "m", "api_base": f"{URL}/v1", "supports_schema": True}
    assert parsed("llm", Address(URL, "m", None, tools=False)) == [entry]
    with_key = {**entry, "api_key_name": "specdec", "supports_tools": True}
    assert parsed("llm", Address(URL, "m", None, True)) == [with_key]


def test_options_of_the_server_change_what_is_printed(specdec, monkeypatch):
    monkeypatch.setenv(KEY, "secret")
    options = ("--host", "0.0.0.0", "--port", 9000, "--max-context", 512)
    code, out, _ = specdec("serve", "-p", "demo", "--print-config", "opencode", *options)
    provider = json.loads(out)["provider"]["specdec"]
    assert (code, provider["options"]["apiKey"]) == (0, f"{{env:{KEY}}}")
    assert provider["options"]["baseURL"] == "http://127.0.0.1:9000/v1"
    assert provider["models"]["demo"]["limit"]["context"] == 512
    assert provider["models"]["demo"]["tool_call"] is True
