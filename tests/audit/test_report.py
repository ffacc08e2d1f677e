"""`specdec doctor --report`: its sections and their time, failures in it, and names that are not in it."""

from __future__ import annotations

import json
import re

import pytest

from fakes.command import Command
from specdec_cli.audit import report
from specdec_cli.audit.prompts import BUNDLED
from specdec_cli.audit.report import (
    LONG_TOKENS,
    LeftOut,
    make_report,
    measure_sections,
    pair_options,
    report_rows,
    specdec_output,
    tell_rows,
    tell_state,
)
from specdec_cli.errors import DoesNotFit, NotAvailable
from specdec_cli.machine import MachineState
from specdec_cli.pairs.pair import Pair
from specdec_cli.session.load import load

ROW = {"k": 4, "measured": True, "speedup": {"mean": 1.5, "low": 1.2, "high": 1.9}}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def spending(clock, seconds, note="", error=None):
    def measure(part, left):
        part.data["left"] = left()
        clock.now += seconds
        part.note = note
        if error:
            raise error

    return measure


def test_time_saved_by_a_section_is_there_for_later_ones_and_what_finds_none_is_named():
    clock = Clock()
    work = [("a", 50, spending(clock, 10, "some")), ("b", 50, spending(clock, 97)), ("c", 0.1, print)]
    first, second, third, last = measure_sections([*work, ("d", 0, spending(clock, 0))], 100.0, clock, lambda *_: None)
    assert (first.data["left"], second.data["left"]) == (pytest.approx(50, abs=0.1), pytest.approx(90, abs=0.2))
    assert (first.status, first.seconds, second.status) == ("partial", 10.0, "done")
    assert (third.status, third.note, last.status) == ("left out", "no time was left", "done")


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (LeftOut("the pair has no draft"), "left out", "the pair has no draft"),
        (DoesNotFit("9 GB and 8 GB", "a hint"), "failed", "9 GB and 8 GB"),
        (RuntimeError("Insufficient Memory"), "failed", "RuntimeError: Insufficient Memory"),
    ],
)
def test_a_section_that_fails_keeps_what_it_found_and_the_next_still_runs(error, status, note):
    clock = Clock()
    work = [("a", 1, spending(clock, 1, error=error)), ("b", 1, spending(clock, 1))]
    first, second = measure_sections(work, 9.0, clock, lambda *_: None)
    assert (first.status, first.note, list(first.data), second.status) == (status, note, ["left"], "done")


def test_no_name_of_the_person_or_the_machine_is_in_a_report(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "engine.local")
    monkeypatch.setattr(report, "specdec_output", lambda *_: "")

    def not_here(reserve_tokens):
        raise NotAvailable("/home/ada/models/big and ~ada, adapter on engine, engine.local: /home/ada/x", "")

    found = make_report(Pair("ada", "/home/ada/models/big", None), not_here, 100.0, lambda *_: None)
    parts = {part["name"]: (part["status"], part["note"]) for part in found["parts"]}
    assert parts["load"] == ("failed", "…/big and ~(user), adapter on (host), (host): ~/x")
    assert parts["audit"] == parts["memory"] == ("left out", "the pair is not loaded")
    assert found["pair"] == {"name": "(user)", "target": "…/big", "draft": None, "revisions": [None]}
    assert "/home/ada" not in json.dumps(found)


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        (Pair("demo", "t", "d", source="models.toml"), ["--pair", "demo"]),
        (Pair("t", "x/t", "head:x/o"), ["--target", "x/t", "--head-from", "x/o"]),
        (Pair("t", "t", "d", target_revision="r"), ["--target", "t", "--draft", "d", "--target-revision", "r"]),
    ],
)
def test_other_processes_get_the_very_pair(pair, options):
    assert pair_options(pair) == options


def written(arguments, seconds):
    """What other processes of specdec write."""
    if arguments[0] == "bench":
        told = {"verdict": {"told": "K 4"}, "rows": [ROW], "draft_steps": {}, "verify_steps": {}}
        return json.dumps({"report": [told], "samples": [{"prompt": "a secret"}]})
    return (json.dumps({"name": "qwen3, 4 bits", "status": "wrong", "detail": "d"}) + "\n") * 2


@pytest.fixture
def quick(monkeypatch):
    for name, value in (("PASSES", 2), ("REPLIES", 2), ("REPLY_TOKENS", 40), ("AUDIT_TOKENS", 8)):
        monkeypatch.setattr(report, name, value)
    monkeypatch.setattr(report, "specdec_output", written)


@pytest.mark.slow
def test_every_section_of_a_pair_is_measured_and_no_text_of_it_is_kept(tiny_pair, quick):
    pair, asked = Pair("tiny", *map(str, tiny_pair)), []

    def opened(reserve_tokens):
        asked.append(reserve_tokens)
        return load(pair).session()

    found = make_report(pair, opened, 600.0, lambda *_: None)
    parts = {part["name"]: part for part in found["parts"]}
    text = json.dumps(found)
    assert asked == [LONG_TOKENS] and not any(prompt.text in text for prompt in BUNDLED) and "secret" not in text
    weights = parts["load"]["data"]["target"]["weight_bytes"] + parts["load"]["data"]["draft"]["weight_bytes"]
    assert [len(times) for times in parts["sampled replies"]["data"].values()] == [2, 2]
    assert re.fullmatch(
        r"first token [\d.]+ then [\d.]+ s, all of it [\d.]+ then [\d.]+ s", parts["sampled replies"]["told"]
    )
    last, after = parts["memory"]["data"]["replies"][-1], parts["memory given back"]["data"]
    assert last["active_bytes"] - after["active_bytes"] >= 0.9 * weights
    at_512 = parts["rows at 512"]  # the draft reads the end of it
    assert (at_512["status"], at_512["note"]) == ("partial", "target: its context holds 256 tokens")
    assert "draft" in at_512["data"] and "target" not in at_512["data"]
    assert [one["result"] for one in parts["audit"]["data"]["findings"]] == ["identical"] * 3 * len(BUNDLED)
    assert "divergence" not in text and parts["audit"]["told"] == "0 of 24 answers diverged, 0 at a near-tie"
    assert (parts["bench"]["data"]["rows"], parts["bench"]["told"]) == ([ROW], "K 4")
    assert parts["self-test"]["told"] == "0 of 2 passed, 2 wrong: qwen3, 4 bits, qwen3, 4 bits"
    rows = {name: (value, note) for name, value, note in report_rows(found)}
    assert rows["bench"] == ("K 4", "") and rows["rows at 512"][1] and len(rows) <= 20


@pytest.mark.slow
def test_row_costs_of_both_models_are_there_for_a_context_that_they_hold(tiny_pair, quick, monkeypatch):
    monkeypatch.setattr(report, "SHORT_TOKENS", 100)
    pair = Pair("tiny", *map(str, tiny_pair))

    def opened(reserve_tokens):
        if reserve_tokens == LONG_TOKENS:
            raise DoesNotFit("9 GB and 8 GB", "close something")
        return load(pair).session()

    parts = {part["name"]: part for part in make_report(pair, opened, 60.0, lambda *_: None)["parts"]}
    assert parts["rows at 8192"]["note"] == "caches of 8192 tokens do not fit this machine's memory"
    data = parts["rows at 100"]["data"]
    assert [[cost["rows"] for cost in data[role]][:3] for role in ("target", "draft")] == [[1, 2, 3]] * 2
    assert parts["rows at 100"]["told"].split(", ")[0].endswith(" ms a row")


def test_costs_are_told_in_rows_of_the_target_and_what_slows_a_machine_down_is_named():
    assert tell_rows({1: 0.02, 2: 0.024, 8: 0.048}, {1: 0.003}) == "20 ms a row, c 0.15, v(2) 1.2, v(8) 2.4"
    assert tell_rows({}, {1: 0.1}) == ""
    state = MachineState("battery", True, "heavy", 7.5)
    told = "on battery, low power mode, which caps the chip, thermal pressure heavy, load 7.5"
    assert tell_state(state) == told
    assert tell_state(state, 8) == f"{told} on 8 cores before anything ran: times are too long"
    assert tell_state(MachineState(load=1.5), 8) == "load 1.5"


@pytest.mark.slow
def test_a_process_says_what_it_wrote_and_ends_with_its_time(monkeypatch, tmp_path):
    with pytest.raises(RuntimeError, match=r"specdec run ended with 3: error: no pair named nosuch"):
        specdec_output(["run", "-p", "nosuch", "hello"], 60.0)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho one $SPECDEC_K $SPECDEC_MODELS\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(report.sys, "executable", str(program))
    monkeypatch.setenv("SPECDEC_K", "7")
    monkeypatch.setenv("SPECDEC_MODELS", "/models.toml")
    assert specdec_output([], 0.5) == "one /models.toml\n"


# The command


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    return Command(tmp_path, monkeypatch, capsys)


@pytest.mark.slow
def test_a_report_is_shown_and_written_as_one_file(specdec, quick, tiny_pair, tmp_path):
    target, draft = tiny_pair
    line = ["doctor", "--report", tmp_path / "mac.json", "--target", target, "--draft", draft, "--time-budget", "9s"]
    code, out, err = specdec(*line, "--yes")
    assert code == 0 and "wrote " in err and "It holds no prompt" in out
    parts = {part["name"]: part for part in json.loads((tmp_path / "mac.json").read_text())["parts"]}
    assert parts["load"]["status"] == "done" and len(parts["memory"]["data"]["replies"]) == 2


def test_what_is_wrong_is_said_and_where_nobody_can_answer_nothing_is_measured(specdec, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "make_report", lambda *_: pytest.fail("measured"))
    code, message, hint = specdec.refused("doctor", "--report", tmp_path / "mac.json")
    assert (code, hint) == (2, "add --yes to write it without asking")
    assert message.endswith("is written only if you agree, and there is no terminal to ask on")
    for options, said in (
        (["--report", "/nowhere/mac.json", "--yes"], "there is no such folder"),
        (["--report", "mac.txt", "--yes"], "ends in .txt"),
        (["--report", "mac.json", "--yes", "--time-budget", "soon"], "is not a time"),
        (["--report", "mac.json", "--selftest"], "--selftest and --report mac.json were given"),
        (["--json"], "--json was given without --selftest"),
    ):
        code, message, _ = specdec.refused("doctor", *options)
        assert code == 2 and said in message


def test_ctrl_c_in_the_middle_leaves_no_file(specdec, quick, tiny_pair, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("specdec_cli.audit.audit.run_audit", interrupted)
    target, draft = tiny_pair
    line = ["doctor", "--report", tmp_path / "mac.json", "--target", target, "--draft", draft, "--time-budget", "9s"]
    assert specdec(*line, "--yes")[0] == 130 and not (tmp_path / "mac.json").exists()
