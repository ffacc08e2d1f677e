"""`specdec serve --switch`: the pairs that may be asked for are those of models.toml that are here."""

import pytest

from fakes.models import tiny_folder
from specdec_cli.cli.serve import Others
from specdec_cli.errors import NotAvailable
from specdec_cli.request import Request

PAIRS = """schema_version = 1
[pairs.one]
target = "{0}"
drafter = "ngram"
[pairs.away]
target = "org/away"
drafter = "ngram"
"""


@pytest.fixture
def others(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models.toml"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "models.toml").write_text(PAIRS.format(tiny_folder(tmp_path / "one")))
    return Others("demo", None, lambda found: Request(drafter=found.drafter), lambda found: found)


def test_they_are_those_that_are_here_but_for_the_server_s_own(others):
    assert {"one", "demo-hybrid"} <= set(others.here()) and not {"demo", "away"} & set(others.here())


def test_each_has_the_drafter_that_models_toml_gives_it(others):
    assert others.loaded("one").drafter == others.switch().find("one").base.drafter == "ngram"
    forced = Others("demo", "none", others.based, others.load)
    assert forced.loaded("one").drafter == "none"


def test_a_pair_that_is_added_meanwhile_is_found_and_one_that_is_not_is_none(others, tmp_path):
    switch = others.switch()
    assert switch.find("two") is None
    more = tiny_folder(tmp_path / "two", seed=1)
    toml = tmp_path / "models.toml"
    toml.write_text(toml.read_text() + f'[pairs.two]\ntarget = "{more}"\ndrafter = "none"\n')
    found = switch.find("two")
    assert (found.name, found.pair, found.context_limit, found.vocab_size) == ("two", "two", 256, 259)
    assert switch.find("two") is found
    with pytest.raises(NotAvailable, match="no pair named three"):
        others.loaded("three")


def test_a_models_toml_that_was_broken_meanwhile_is_the_server_s_fault_and_no_request_s(others, tmp_path):
    (tmp_path / "models.toml").write_text("nonsense")
    for ask in (others.here, lambda: others.switch().find("one"), lambda: others.loaded("one")):
        with pytest.raises(NotAvailable, match="is not valid TOML"):
            ask()
