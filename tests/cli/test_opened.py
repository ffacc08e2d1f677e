"""From options to a loaded pair: which pair, which drafter, and what is said meanwhile."""

import json
import os

import pytest

from specdec_cli.cli.opened import forbid_network, loading, named, opened, resolved
from specdec_cli.cli.options import ModelOptions, PairOptions
from specdec_cli.errors import DoesNotFit, NotAvailable, UsageError

DOORS = [
    (["run", "-p"], ["hi"]),
    (["chat", "-p"], []),
    (["serve", "-p"], []),
    (["race", "-p"], ["hi"]),
    (["bench", "-p"], []),
    (["audit", "-p"], []),
    (["check"], ["--offline"]),
    (["pull"], ["--offline"]),
]


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


@pytest.mark.parametrize("spelled", ["./target", "target", "absolute"])
def test_a_folder_in_place_of_a_pairs_name_is_a_target(specdec, tiny_pair, monkeypatch, spelled):
    """`run -p ./model` and `check ./model` knew no pair of that name."""
    monkeypatch.chdir(tiny_pair[0].parent)
    name = str(tiny_pair[0]) if spelled == "absolute" else spelled
    code, out, _ = specdec("run", "-p", name, "--draft", tiny_pair[1], "-n", "2", "--raw", "--json", "hi")
    start = json.loads(out.splitlines()[0])
    assert (code, start["target"], start["draft"]) == (0, name, str(tiny_pair[1]))
    assert specdec("check", name, "--json") == specdec("check", "--target", name, "--json")


def test_a_hub_id_in_place_of_a_pairs_name_is_a_target(specdec):
    by_name = [specdec.refused(*command, "org/name", *more) for command, more in DOORS]
    assert by_name == [specdec.refused(command[0], "--target", "org/name", *more) for command, more in DOORS]
    assert {answer[0] for answer in by_name} == {3} and "no pair named" not in str(by_name)


def test_a_pair_of_that_name_comes_before_a_folder(specdec, tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert named("demo", PairOptions(), here=True).pair.target == "specdec:demo/target"


@pytest.mark.parametrize(
    "command", [["pull", "qwen3-8b", "-y"], ["check", "qwen3-8b"], ["pairs", "use", "qwen3-8b", "-y"]]
)
def test_where_the_network_is_forbidden_nothing_says_to_pull(specdec, command):
    """`pull` said: `specdec pull --target …`."""
    here = "mlx-community/Qwen3-8B-4bit is neither a folder here nor in the model cache"
    code, message, hint = specdec.refused(*command)
    assert (code, message, hint) == (3, f"{here}, and HF_HUB_OFFLINE forbids asking the Hub", "unset HF_HUB_OFFLINE")
    if command[0] != "pairs":
        code, message, hint = specdec.refused(*command, "--offline")
        assert (code, message) == (3, f"{here}, and --offline forbids asking the Hub")
        assert hint == "leave out --offline, or unset SPECDEC_OFFLINE"
