"""`specdec serve --switch`: the pairs that may be asked for are those of models.toml that are here."""

from functools import partial

import pytest

from fakes.models import tiny_folder
from specdec_cli.apps.serve.build import pairs_here, spec_here
from specdec_cli.apps.serve.http.errors import HttpError
from specdec_cli.apps.serve.http.service import settled
from specdec_cli.apps.serve.model import Switch
from specdec_cli.core.errors import NotAvailable
from specdec_cli.core.request import Request

PAIRS = """schema_version = 1
[pairs.one]
target = "{0}"
drafter = "ngram"
[pairs.away]
target = "org/away"
drafter = "ngram"
"""


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "models.toml").write_text(PAIRS.format(tiny_folder(tmp_path / "one")))
    return tmp_path / "models.toml"


@pytest.fixture
def switch():
    return Switch(partial(pairs_here, "demo", None), lambda spec: Request(drafter=spec.drafter))


def test_they_are_those_that_are_here_but_for_the_server_s_own(switch):
    assert {"one", "demo-hybrid"} <= set(switch.here()) and not {"demo", "away"} & set(switch.here())


def test_each_has_the_drafter_that_models_toml_gives_it(switch):
    assert spec_here("one", None).drafter == switch.find("one").base.drafter == "ngram"
    assert spec_here("one", "none").drafter == pairs_here("demo", "none")["one"].drafter == "none"


def test_a_pair_that_is_added_meanwhile_is_found_and_one_that_is_not_is_none(switch, models, tmp_path):
    assert switch.find("two") is None
    more = tiny_folder(tmp_path / "two", seed=1)
    models.write_text(models.read_text() + f'[pairs.two]\ntarget = "{more}"\ndrafter = "none"\n')
    found = switch.find("two")
    assert (found.name, found.pair, found.context_limit, found.vocab_size) == ("two", "two", 256, 259)
    assert switch.find("two") is found
    with pytest.raises(NotAvailable, match="no pair named three"):
        spec_here("three", None)


def test_a_model_of_another_program_may_be_asked_for_and_gguf_is_told_what_it_is(switch, tmp_path, monkeypatch):
    """Its short name, its id and its address are names of it, a path is none; `run` took them, a request did not."""
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    folders = tmp_path / "folders"
    monkeypatch.setenv("SPECDEC_MODEL_FOLDERS", str(folders))
    tiny_folder(folders / "org/Big-1B", seed=2)
    tiny_folder(folders / "Deep-1B", seed=3)
    (folders / "me/Big-7B-GGUF").mkdir(parents=True)
    (folders / "me/Big-7B-GGUF/model.gguf").write_bytes(b"GGUF")
    assert {"Big-1B", "Deep-1B"} <= set(switch.here()) and not any("/" in name for name in switch.here())
    for name in ("Big-1B", "org/Big-1B", "big-1b", "https://hf.co/org/Big-1B"):
        assert (switch.find(name).target, switch.find(name).pair) == ("org/Big-1B", "Big-1B")
    assert switch.find("Deep-1B").target == "Deep-1B" and switch.find(str(folders / "Deep-1B")) is None
    found = spec_here("Big-1B", None)
    assert (found.pair.name, found.pair.target, found.drafter) == ("Big-1B", "org/Big-1B", "ngram")
    assert switch.find("x" * 300, settled) is None
    with pytest.raises(HttpError, match=r"GGUF in your folder.*; look for it at huggingface.co") as refused:
        switch.find("Big-7B-GGUF", settled)
    assert refused.value.status == 404


def test_a_models_toml_that_was_broken_meanwhile_is_the_server_s_fault_and_no_request_s(switch, models):
    models.write_text("nonsense")
    for ask in (switch.here, lambda: switch.find("one"), lambda: spec_here("one", None)):
        with pytest.raises(NotAvailable, match="is not valid TOML"):
            ask()
