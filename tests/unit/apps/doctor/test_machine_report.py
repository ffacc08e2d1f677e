"""`specdec doctor --report`: what other commands print, joined; failures in them, and names that are not in it."""

from __future__ import annotations

import json
import os

import pytest

from fakes.command import Command
from specdec_cli.apps.audit.prompts import BUNDLED
from specdec_cli.apps.doctor import machine_report as report
from specdec_cli.apps.doctor.machine_report import make_report, pair_options, report_rows, specdec_output
from specdec_cli.pairs.pair import Pair

ROW = {"k": 4, "measured": True, "speedup": {"mean": 1.5, "low": 1.2, "high": 1.9}}
FINDING = {
    "prompt": "code",
    "k": 4,
    "result": "near-tie",
    "divergence": {"position": 3, "gap": 0.1, "tokens": ["secret"]},
}
PRINTED = {
    "audit": json.dumps({"near_tie": 0.2, "rounding": {}, "findings": [FINDING]}),
    "bench": json.dumps(
        {
            "report": [{"verdict": {"told": "K 4"}, "rows": [ROW], "draft_steps": {}, "verify_steps": {}}],
            "samples": [{"prompt": "a secret"}],
        }
    ),
    "doctor": (json.dumps({"name": "qwen3, 4 bits", "status": "wrong", "detail": "d"}) + "\n") * 2,
}
PAIR = Pair("tiny", "org/t", "org/d")


@pytest.fixture
def printed(monkeypatch):
    """What other processes of specdec print; the words that each was given."""
    asked, found = [], dict(PRINTED)
    monkeypatch.setattr(report, "specdec_output", lambda words, seconds: asked.append(words) or (found[words[0]], ""))
    return found, asked


def made(pair=PAIR):
    return make_report(pair, "auto", 300.0, lambda *_: None)


def test_what_the_commands_print_is_there_without_any_text(printed):
    found = made()
    assert "secret" not in json.dumps(found)
    assert (found["audit"]["summary"], found["audit"]["data"]["findings"][0]["gap"]) == ("1 near-tie", 0.1)
    assert (found["bench"]["summary"], found["bench"]["data"]["rows"]) == ("K 4", [ROW])
    assert found["selftest"]["summary"] == "0 of 2 passed, 2 wrong: qwen3, 4 bits, qwen3, 4 bits"
    assert "chip" in [row[0] for row in found["doctor"]["data"]]
    rows = {name: (value, note) for name, value, note in report_rows(found)}
    assert rows["bench"] == ("K 4", "") and rows["pair"] == ("tiny", "org/t with org/d")


def test_each_command_gets_the_pair_its_drafter_and_its_share_of_the_time(printed):
    made()
    selftest, bench, audit = printed[1]
    assert audit[-7:] == ["--target", "org/t", "--draft", "org/d", "--offline", "--drafter", "auto"]
    assert bench[-2] == "--time-budget" and 90 < int(bench[-1].removesuffix("s")) < 150
    assert selftest == ["doctor", "--selftest", "--json"]


@pytest.mark.parametrize(("text", "note"), [("", "it printed nothing"), ("{", "Expecting"), ("{}", "findings")])
def test_a_command_that_fails_says_so_and_the_others_still_run(printed, text, note):
    printed[0]["audit"] = text
    found = made()
    assert found["audit"]["data"] is None and note in found["audit"]["note"] and found["bench"]["summary"] == "K 4"


def test_no_name_of_the_person_or_the_machine_is_in_a_report(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "engine.local")

    def not_here(words, seconds):
        raise RuntimeError("/home/ada/models/big and ~ada, adapter on engine, engine.local: /home/ada/x")

    monkeypatch.setattr(report, "specdec_output", not_here)
    found = made(Pair("ada", "/home/ada/models/big", None))
    assert found["audit"]["note"] == "…/big and ~(user), adapter on (host), (host): ~/x"
    assert found["pair"] == {"name": "(user)", "target": "…/big", "draft": None, "revisions": [None]}
    assert "/home/ada" not in json.dumps(found)


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        (Pair("demo", "t", "d", source="models.toml"), ["--pair", "demo"]),
        (Pair("t", "x/t", "head:x/o"), ["--target", "x/t"]),
        (Pair("t", "t", "d", target_revision="r"), ["-p", "t", "--draft", "d"]),
    ],
)
def test_other_processes_get_the_very_pair(pair, options):
    assert pair_options(pair) == options


@pytest.mark.slow
def test_a_process_says_what_it_wrote_and_ends_with_its_time(monkeypatch, tmp_path):
    with pytest.raises(RuntimeError, match=r"specdec run ended with 3: error: no pair named nosuch"):
        specdec_output(["run", "-p", "nosuch", "hello"], 60.0)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho one $SPECDEC_K $SPECDEC_MODELS $SPECDEC_CONFIG\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(report.sys, "executable", str(program))
    monkeypatch.setenv("SPECDEC_K", "7")
    monkeypatch.setenv("SPECDEC_MODELS", "/models.toml")
    assert specdec_output([], 0.5) == (f"one /models.toml {os.devnull}\n", "stopped after its 0 s")


# The command


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    return Command(tmp_path, monkeypatch, capsys)


@pytest.mark.metal
@pytest.mark.slow
def test_a_report_of_real_commands_is_shown_and_written_as_one_file(specdec, tmp_path):
    line = ["doctor", "--report", tmp_path / "mac.json", "-p", "demo", "--time-budget", "30s"]
    code, out, err = specdec(*line, "--yes")
    assert code == 0 and "wrote " in err and "It holds no prompt" in out
    text = (tmp_path / "mac.json").read_text()
    found = json.loads(text)
    assert found["selftest"]["data"] and "chip" in text
    assert all(found[name]["data"] or "stopped after" in found[name]["note"] for name in ("bench", "audit"))
    assert not any(prompt.text in text for prompt in BUNDLED)


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


def test_ctrl_c_in_the_middle_leaves_no_file(specdec, tiny_pair, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "specdec_output", interrupted)
    target, draft = tiny_pair
    line = ["doctor", "--report", tmp_path / "mac.json", "--target", target, "--draft", draft, "--time-budget", "9s"]
    assert specdec(*line, "--yes")[0] == 130 and not (tmp_path / "mac.json").exists()
