"""What the doctor finds on this machine, and its self-test with what is remembered of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from specdec_cli.audit import doctor
from specdec_cli.audit.doctor import SelfTest, TimeLeft
from specdec_cli.engine import load as listing
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.conformance import kernels, suite
from specdec_cli.engine.conformance.suite import Outcome
from specdec_cli.engine.load import architectures

FEW = ("gemma3_text", "qwen3_5", "olmo")
BOTH = ["gemma3_text, bfloat16", "gemma3_text, 4 bits"]
NOT_YET = "for this device: specdec doctor --selftest"


@pytest.mark.parametrize("there", [False, True])
def test_a_cache_folder_is_said_as_it_is_and_not_made(monkeypatch, tmp_path, there):
    folder = tmp_path if there else tmp_path / "none" / "hub"
    monkeypatch.setattr(doctor, "cache_folder", lambda: folder)
    monkeypatch.setattr("os.access", lambda path, mode: not there)
    value, note = {name: (value, note) for name, value, note in doctor.diagnose()}["model cache"]
    assert value == str(folder) and folder.exists() == there
    assert note.startswith("exists, " if there else "not there yet, ")
    assert note.endswith(" free, not writable" if there else " free")


@pytest.fixture
def few(monkeypatch, tmp_path):
    """Three architectures and one family; the file that records a run."""
    found = {name: architectures()[name] for name in FEW}
    monkeypatch.setattr(listing, "architectures", lambda: found)
    one = {"window": kernels.families()["window"]}
    monkeypatch.setattr(kernels, "families", lambda: one)
    file = tmp_path / "state" / "selftest.json"
    monkeypatch.setattr(doctor, "record_file", lambda: file)
    return file


@pytest.mark.slow
def test_a_passed_run_is_remembered_for_this_device_and_these_versions(few):
    assert NOT_YET in doctor.verification()
    seen = []
    found = doctor.run_selftest(lambda done, total, outcome: seen.append((done, total, outcome.name)))
    assert seen == [(at, 5, name) for at, name in enumerate([*BOTH, *FEW], 1)]
    assert not found.wrong
    said = "verified here: logic for 2 architectures in float32, kernels in 2 tests of 16 and 4 bits, on 20"
    assert doctor.verification().startswith(said)
    record = json.loads(few.read_text())
    few.write_text(json.dumps(record | {"where": record["where"] | {"mlx": "0.1"}}))
    assert NOT_YET in doctor.verification()
    few.write_text("{")
    assert NOT_YET in doctor.verification()


def test_each_line_says_what_it_proves_and_a_refusal_proves_nothing():
    shown = "kernels real models use: 4 bits, head size 256"
    families = [
        Outcome("a", "pass", detail="gap 0", proves=shown),
        Outcome("b", "refused", detail="none", proves=shown),
    ]
    findings = SelfTest(families, [Outcome("olmo", "refused", detail="no package"), Outcome("llama", "pass")], 2)
    logic, kernel, *rest = findings.findings()
    assert logic[:2] == ("rollback logic, float32", "1 of 2 passed")
    assert kernel[:2] == ("kernels real models use", "1 of 2 passed")
    assert "no proof for kernels of 16 or 4 bits" in logic[2]
    assert rest == [
        ("a", "pass", f"{shown}; gap 0"),
        ("b", "refused", "none"),
        ("olmo", "refused", "no package"),
        ("time", "2 s", ""),
    ]


@pytest.mark.slow
def test_a_wrong_architecture_is_named_now_and_later(few, monkeypatch):
    monkeypatch.setattr(WindowKVCache, "trim", lambda window, tokens: tokens)
    found = doctor.run_selftest(lambda *_: None)
    assert [outcome.name for outcome in found.wrong] == [*BOTH, "gemma3_text"]
    assert "FAILED here for gemma3_text, bfloat16, gemma3_text, 4 bits, gemma3_text" in doctor.verification()


def test_one_that_raises_does_not_stop_the_others(few, monkeypatch):
    def check(architecture, k, tokens, real=suite.check):
        if architecture.name == "gemma3_text":
            raise RuntimeError("kernel failed to compile")
        return real(architecture, k, tokens)

    monkeypatch.setattr(suite, "check", check)
    monkeypatch.setattr(kernels, "families", dict)
    found = doctor.run_selftest(lambda *_: None)
    assert [(o.name, o.detail) for o in found.wrong] == [("gemma3_text", "RuntimeError: kernel failed to compile")]
    assert [(o.name, o.status) for o in found.logic[1:]] == [("qwen3_5", "pass"), ("olmo", "refused")]


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
