"""What clients may know of a pair."""

import json

import pytest

import specdec_cli
from fakes.serving import model_of
from fakes.tool_model import tool_folder
from specdec_cli.apps.serve.http import llama
from specdec_cli.apps.serve.job import SchedulerStatus
from specdec_cli.apps.serve.model import public_name
from specdec_cli.core.errors import UsageError


def test_a_pair_of_folders_is_public_name_without_their_paths(tmp_path):
    """/v1/models told every client where this machine keeps its files."""
    target, draft = tool_folder(tmp_path / "secret" / "big"), tool_folder(tmp_path / "secret" / "small")
    pair = specdec_cli.load(target=f"{target}/", draft=str(draft))
    model = model_of(pair, specdec_cli.Request(), 1)
    assert (model.name, model.target, model.draft) == ("big", "big", "small")
    said = json.dumps([llama.models(model), llama.props(model, SchedulerStatus())])
    assert "secret" not in said and '"target": "big"' in said
    assert model.answers_to("big") and not model.answers_to(str(target))


def test_an_error_of_its_template_names_no_path(tmp_path):
    target = tool_folder(tmp_path / "secret" / "big")
    (target / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((target / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    model = model_of(specdec_cli.load(target=str(target), draft=None), specdec_cli.Request(), 1)
    with pytest.raises(UsageError, match="big has no chat template") as refused:
        model.prompt([{"role": "user", "content": "Hi"}], True, [{"type": "function", "function": {"name": "f"}}])
    assert "secret" not in refused.value.message


def test_names_that_are_no_folders_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("specdec:demo/target", "mlx-community/Qwen3-8B-4bit", "demo"):
        assert public_name(name) == name
    assert public_name(".") == tmp_path.name
