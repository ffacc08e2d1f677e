"""`doctor --selftest`: the suite on this device, and what is remembered of it."""

import json
import os
import subprocess
import sys

import pytest

from specdec_cli.audit import selftest
from specdec_cli.audit.selftest import SelfTest, TimeLeft
from specdec_cli.engine import architectures as listing
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.conformance import kernels, suite
from specdec_cli.engine.conformance.suite import Outcome

FEW = ("gemma3_text", "qwen3_5", "olmo")
BOTH = ["gemma3_text, bfloat16", "gemma3_text, 4 bits"]


@pytest.fixture(autouse=True)
def _few(monkeypatch, tmp_path):
    found = {name: architectures()[name] for name in FEW}
    monkeypatch.setattr(listing, "architectures", lambda: found)
    one = {"window": kernels.families()["window"]}
    monkeypatch.setattr(kernels, "families", lambda: one)
    monkeypatch.setattr(selftest, "record_file", lambda: tmp_path / "state" / "selftest.json")


def test_a_passed_run_is_remembered_for_this_device_and_these_versions(monkeypatch):
    assert "for this device: specdec doctor --selftest" in selftest.verification()
    seen = []
    found = selftest.run_selftest(lambda done, total, outcome: seen.append((done, total, outcome.name)))
    assert seen == [(at, 5, name) for at, name in enumerate([*BOTH, *FEW], 1)]
    assert not found.wrong
    said = "verified here: logic for 2 architectures in float32, kernels in 2 tests of 16 and 4 bits, on 20"
    assert selftest.verification().startswith(said)
    monkeypatch.setattr(selftest, "_where", lambda: {"device": "another"})
    assert "for this device: specdec doctor --selftest" in selftest.verification()


def test_each_line_says_what_it_proves_and_a_refusal_proves_nothing():
    shown = "kernels real models use: 4 bits, head size 256"
    families = (
        Outcome("a", "pass", detail="gap 0", proves=shown),
        Outcome("b", "refused", detail="none", proves=shown),
    )
    findings = SelfTest(
        families, (Outcome("olmo", "refused", detail="no package"), Outcome("llama", "pass")), 2
    ).findings()
    assert [row[:2] for row in findings[:2]] == [
        ("rollback logic, float32", "1 of 2 passed"),
        ("kernels real models use", "1 of 2 passed"),
    ]
    assert "no proof for kernels of 16 or 4 bits" in findings[0][2]
    assert findings[2:] == [
        ("a", "pass", f"{shown}; gap 0"),
        ("b", "refused", "none"),
        ("olmo", "refused", "no package"),
        ("time", "2 s", ""),
    ]


def test_a_wrong_architecture_is_named_now_and_later(monkeypatch):
    monkeypatch.setattr(WindowKVCache, "trim", lambda window, tokens: tokens)
    found = selftest.run_selftest(lambda *_: None)
    assert [outcome.name for outcome in found.wrong] == [*BOTH, "gemma3_text"]
    assert "FAILED here for gemma3_text, bfloat16, gemma3_text, 4 bits, gemma3_text" in selftest.verification()


def test_one_that_raises_does_not_stop_the_others(monkeypatch):
    def check(architecture, k, tokens, real=suite.check):
        if architecture.name == "gemma3_text":
            raise RuntimeError("kernel failed to compile")
        return real(architecture, k, tokens)

    monkeypatch.setattr(suite, "check", check)
    monkeypatch.setattr(kernels, "families", dict)
    found = selftest.run_selftest(lambda *_: None)
    assert [(o.name, o.detail) for o in found.wrong] == [("gemma3_text", "RuntimeError: kernel failed to compile")]
    assert [(o.name, o.status) for o in found.logic[1:]] == [("qwen3_5", "pass"), ("olmo", "refused")]


def test_a_damaged_record_counts_as_none(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "selftest.json").write_text("{")
    assert "for this device: specdec doctor --selftest" in selftest.verification()


@pytest.mark.slow
@pytest.mark.full
def test_the_command_runs_every_architecture_and_exits_0(tmp_path):
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "specdec_cli", "doctor", "--selftest"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # In a pipe each result comes at once, and the totals last.
    assert "\nrollback logic, float32\t" in done.stdout and "\twrong" not in done.stdout
    record = next(tmp_path.rglob("selftest.json"))
    known = json.loads(record.read_text())
    assert known["passed"] > 100 and known["families"] >= 14


def test_the_time_left_follows_the_pace_of_the_newest_results():
    seconds = iter([0.0, 10.0, 20.0, 30.0, *(30.0 + step for step in range(1, 9))])
    time_left = TimeLeft(lambda: next(seconds))
    said = [time_left(done, 20) for done in range(1, 12)]
    assert said[:3] == ["", "", ", about 170 s left"] and said[-1] == ", about 9 s left"
    assert TimeLeft(lambda: 0.0)(20, 20) == ""
