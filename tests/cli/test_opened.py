"""From options to a loaded pair: which pair, which drafter, and what is said meanwhile."""

import os

import pytest

from specdec_cli.cli.opened import forbid_network, loading, named, opened, resolved
from specdec_cli.cli.options import ModelOptions, PairOptions
from specdec_cli.errors import DoesNotFit, NotAvailable, UsageError


@pytest.fixture
def models(tiny_pair):
    target, draft = map(str, tiny_pair)
    return ModelOptions(target=target, draft=draft)


def test_a_pair_by_name_and_by_its_models(models):
    assert named("demo", PairOptions(), here=True).pair.name == "demo"
    found = named(None, models, here=True).pair
    assert (found.target, found.draft) == (models.target, models.draft)
    with pytest.raises(NotAvailable, match="no pair named dmeo"):
        named("dmeo", PairOptions(), here=True)
    with pytest.raises(UsageError, match="both name a target"):
        named("demo", models, here=True)


@pytest.mark.parametrize(
    ("drafter", "ks", "expected"),
    [(None, (), "auto"), ("ngram", (), "ngram"), ("ngram", (0,), "none"), ("ngram", (0, 4), "ngram")],
)
def test_the_drafter_is_the_options_and_nobody_where_every_k_is_0(models, drafter, ks, expected):
    options = ModelOptions(target=models.target, draft=models.draft, drafter=drafter)
    assert resolved(options, ks).drafter == expected


def test_offline_is_said_to_the_libraries_before_they_are_imported(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    forbid_network(False)
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    forbid_network(True)
    assert os.environ["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(("shown", "reason", "expected"), [(True, "why", "why\n"), (True, "", ""), (False, "why", "")])
def test_the_reason_of_a_pair_is_one_line_where_anything_is_shown(capsys, shown, reason, expected):
    with loading("tiny", reason, shown=shown, plain=True):
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == expected


def test_a_pair_that_does_not_load_gives_no_reason(capsys):
    with pytest.raises(NotAvailable), loading("tiny", "why", shown=True):
        raise NotAvailable("gone", "pull it")
    assert capsys.readouterr().err == ""


def test_an_opened_pair_answers_with_the_drafter_asked_for(models):
    options = ModelOptions(target=models.target, draft=models.draft, drafter="ngram")
    session = opened(resolved(options), options, reserve_tokens=64, shown=False, remember_costs=False)
    start, *_, finish = session.reply("hello", max_tokens=4, drafter="ngram")
    assert (start.drafter, start.draft, finish.stats["emitted_tokens"]) == ("ngram", None, 4)


def test_a_pair_must_fit_unless_force_is_given(models, monkeypatch):
    """A device of a megabyte: 50 million tokens of context fit nowhere."""
    monkeypatch.setattr("specdec_cli.engine.device.usable_bytes", lambda: 1_000_000)
    quiet = {"reserve_tokens": 50_000_000, "shown": False, "remember_costs": False}
    with pytest.raises(DoesNotFit, match="are usable"):
        opened(resolved(models), models, **quiet)
    forced = ModelOptions(target=models.target, draft=models.draft, force=True)
    assert opened(resolved(forced), forced, **quiet).names == (models.target, models.draft)
