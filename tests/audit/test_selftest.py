"""`doctor --selftest`: the suite on this device, and what is remembered of it."""

import json
import os
import subprocess
import sys

import pytest

from specdec_cli.audit import selftest
from specdec_cli.engine import architectures as listing
from specdec_cli.engine.architectures import architectures
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.conformance import suite

FEW = ("gemma3_text", "qwen3_5", "olmo")


@pytest.fixture(autouse=True)
def _few(monkeypatch, tmp_path):
    found = {name: architectures()[name] for name in FEW}
    monkeypatch.setattr(listing, "architectures", lambda: found)
    monkeypatch.setattr(selftest, "record_file", lambda: tmp_path / "state" / "selftest.json")


def test_a_passed_run_is_remembered_for_this_device_and_these_versions(monkeypatch):
    assert "for this device: specdec doctor --selftest" in selftest.verification()
    seen = []
    found = selftest.run_selftest(lambda done, total, name: seen.append((done, total, name)))
    assert seen == [(1, 3, "gemma3_text"), (2, 3, "qwen3_5"), (3, 3, "olmo")]
    assert not found.wrong and len(found.passed) == 2
    assert found.findings()[1][:2] == ("olmo", "refused")
    assert selftest.verification().startswith("verified here for 2 architectures on 20")
    monkeypatch.setattr(selftest, "_where", lambda: {"device": "another"})
    assert "for this device: specdec doctor --selftest" in selftest.verification()


def test_a_wrong_architecture_is_named_now_and_later(monkeypatch):
    monkeypatch.setattr(WindowKVCache, "trim", lambda window, tokens: tokens)
    found = selftest.run_selftest(lambda *_: None)
    assert [outcome.name for outcome in found.wrong] == ["gemma3_text"]
    assert "FAILED here for gemma3_text" in selftest.verification()


def test_one_that_raises_does_not_stop_the_others(monkeypatch):
    def check(architecture, k, tokens, real=suite.check):
        if architecture.name == "gemma3_text":
            raise RuntimeError("kernel failed to compile")
        return real(architecture, k, tokens)

    monkeypatch.setattr(suite, "check", check)
    found = selftest.run_selftest(lambda *_: None)
    assert [(o.name, o.detail) for o in found.wrong] == [("gemma3_text", "RuntimeError: kernel failed to compile")]
    assert [outcome.name for outcome in found.passed] == ["qwen3_5"]


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
    assert done.stdout.startswith("passed\t") and "wrong" not in done.stdout
    record = next(tmp_path.rglob("selftest.json"))
    assert json.loads(record.read_text())["passed"] > 100
