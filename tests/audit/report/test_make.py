"""The whole report: its parts and their order, failures in it, and names that are not."""

import json
import time

import pytest

from specdec_cli.audit.report.make import make_report, pair_options
from specdec_cli.errors import NotAvailable
from specdec_cli.pairs.pair import Pair

LOADED = ["rows at 512", "rows at 8192", "memory", "audit", "memory given back"]
CHILDREN = ["in flight", "bench", "self-test"]


def not_here(reserve_tokens):
    raise NotAvailable("/home/ada/models/big is not here", "specdec pull")


def silent(arguments, environment, deadline):
    return iter(())


@pytest.fixture
def ada(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "engine")


def made(pair, budget_seconds=100.0, open_session=not_here):
    return make_report(pair, open_session, budget_seconds, lambda *_: None, time.perf_counter, silent)


def test_a_pair_that_does_not_load_costs_its_own_parts_only(ada):
    report = made(Pair("big", "/home/ada/models/big", "x"))
    found = {part.name: (part.status, part.note) for part in report.parts}
    assert list(found) == ["machine", "load", *LOADED, *CHILDREN, "machine after"]
    assert found["load"] == ("failed", "…/big is not here")
    assert {found[name] for name in LOADED} == {("left out", "the pair is not loaded")}
    assert found["machine"][0] == found["machine after"][0] == "done"


def test_no_name_of_the_person_or_the_machine_is_in_a_report(ada):
    made_of_ada = made(Pair("ada", "/home/ada/models/big", None)).to_dict()
    text = json.dumps(made_of_ada)
    assert "/home/ada" not in text and '"…/big"' in json.dumps(made_of_ada, ensure_ascii=False) and '"(user)"' in text


def test_what_finds_no_time_is_named():
    report = made(Pair("big", "a", "b"), 0.0)
    left = [part.name for part in report.parts if part.note.startswith("no time: ")]
    assert left == ["load", "rows at 512", "rows at 8192", "memory", "audit", *CHILDREN]
    assert [part.name for part in report.parts if part.status == "done"] == ["machine", "machine after"]


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        (Pair("demo", "t", "d", source="models.toml"), ["--pair", "demo"]),
        (Pair("t", "x/t", None), ["--target", "x/t"]),
        (Pair("t", "x/t", "head:x/o"), ["--target", "x/t", "--head-from", "x/o"]),
        (Pair("t", "t", "d", target_revision="r"), ["--target", "t", "--draft", "d", "--target-revision", "r"]),
    ],
)
def test_other_processes_get_the_very_pair(pair, options):
    assert pair_options(pair) == options
