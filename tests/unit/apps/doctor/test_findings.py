"""What the doctor finds on this machine, and its self-test with what is remembered of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from specdec_cli.apps.doctor import findings as doctor
from specdec_cli.engine import device, selftest
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.selftest import Outcome

BOTH = ["gemma3_text, bfloat16", "gemma3_text, 4 bits"]
NOT_YET = "for this device: specdec doctor --selftest"


def test_the_report_names_machine_versions_and_cache_and_exits_0(specdec):
    code, out, err = specdec("doctor")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    names = {"chip", "computes on", "memory", "specdec", "python", "model cache"}
    assert {f"✓ {name}" for name in names} <= {row[0] for row in rows}
    assert all(2 <= len(row) <= 3 for row in rows)


def test_the_temporary_folder_is_tried_where_mlx_compiles_into_it(specdec, monkeypatch, tmp_path):
    monkeypatch.setattr(device, "backend", lambda: "cpu")
    for folder, note in (
        (tmp_path, "mlx compiles there"),
        (tmp_path / "none", "mlx cannot compile there: there is no"),
    ):
        monkeypatch.setenv("TMPDIR", str(folder))
        code, out, _ = specdec("doctor")
        assert code == 0 and f"temporary folder\t{folder}\t{note}" in out
        assert ("✗ temporary" in out) == ("cannot" in note)


@pytest.mark.parametrize("there", [False, True])
def test_a_cache_folder_is_said_as_it_is_and_not_made(monkeypatch, tmp_path, there):
    folder = tmp_path if there else tmp_path / "none" / "hub"
    monkeypatch.setattr(doctor, "cache_folder", lambda: folder)
    monkeypatch.setattr("os.access", lambda path, mode: not there)
    found = {name: rest for _, name, *rest in doctor.diagnose()}
    value, note = found["model cache"]
    assert value == str(folder) and folder.exists() == there
    assert note.startswith("exists, " if there else "not there yet, ")
    assert note.endswith(" free, not writable" if there else " free")


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("skipped", 0), ("unclear", 1), ("wrong", 1)])
def test_into_a_pipe_each_result_comes_at_once_then_the_totals_and_what_is_wrong_exits_1(
    specdec, monkeypatch, status, code
):
    """The bug: `doctor --selftest | cat` said nothing for 40 seconds."""
    given = [Outcome("qwen3, 4 bits", "skipped", "no"), Outcome("gpt_oss, 4 bits", status, "d")]
    monkeypatch.setattr(selftest, "run_families", lambda _: iter(given))
    found, out, err = specdec("doctor", "--selftest")
    lines = [line.split("\t") for line in out.splitlines()]
    assert (found, err) == (code, "")
    assert lines[:2] == [["qwen3, 4 bits", "skipped", "no"], ["gpt_oss, 4 bits", status, "d"]]
    assert lines[2][:2] == ["self-test", f"{int(status == 'pass')} of 2 passed"] and lines[3][0] == "time"
    found, out, err = specdec("doctor", "--selftest", "--json")
    assert (found, err) == (code, "")
    assert list(map(json.loads, out.splitlines())) == [
        {"name": "qwen3, 4 bits", "status": "skipped", "detail": "no"},
        {"name": "gpt_oss, 4 bits", "status": status, "detail": "d"},
    ]


@pytest.fixture
def record(monkeypatch, tmp_path):
    """The file that records a run, which is of one family."""
    window = {"window": selftest.families()["window"]}
    monkeypatch.setattr(selftest, "families", lambda: window)
    file = tmp_path / "state" / "selftest.json"
    monkeypatch.setattr(doctor, "record_file", lambda: file)
    return file


def test_a_virtual_gpu_is_named_and_its_times_are_not_believed(monkeypatch):
    monkeypatch.setattr(device, "device_name", lambda: "Apple Paravirtual device")
    told = {name: note for _, name, _, note in doctor.diagnose()}
    assert told["computes on"] == "a virtual GPU: its times mean nothing here, and none is kept"


@pytest.mark.parametrize(
    ("chip", "architecture", "system", "warned"),
    [
        ("Apple M5 Max", "applegpu_g17s", "26.1", True),
        ("Apple M5", "applegpu_g17g", "26.0.1", True),
        ("Apple M6", "applegpu_g18g", "16.0", True),  # 26.0, as an older Python is told
        ("Apple M5 Max", "applegpu_g17s", "26.2", False),
        ("Apple M5 Max", "applegpu_g17s", "26.10", False),
        ("Apple M5 Max", "applegpu_g17s", "15.7.4", False),
        ("Apple M4 Pro", "applegpu_g16s", "26.1", False),
        ("AMD EPYC", "", "", False),
    ],
)
def test_an_m5_on_a_macos_that_mlxs_wheel_is_too_new_for_is_told(monkeypatch, chip, architecture, system, warned):
    """The wheel is tagged for 26.0 and built for 26.2 (mlx#4525)."""
    monkeypatch.setattr(device, "device_name", lambda: chip)
    monkeypatch.setattr(device, "kernel_architecture", lambda: architecture)
    monkeypatch.setattr("platform.mac_ver", lambda: (system, ("", "", ""), "arm64"))
    told = [(well, value, note) for well, name, value, note in doctor.diagnose() if name == "macOS"]
    assert told == ([(False, system, doctor.TOO_OLD)] if warned else [])


@pytest.mark.slow
def test_a_passed_run_is_remembered_for_this_device_and_these_versions(record):
    assert NOT_YET in doctor.verification()
    seen = []
    found = doctor.run_selftest(lambda done, total, outcome: seen.append((done, total, outcome.name)))
    assert seen == [(at, 2, name) for at, name in enumerate(BOTH, 1)]
    assert not found.wrong and [row[0] for row in found.findings()] == ["self-test", "time"]
    assert doctor.verification().startswith("verified here, in 2 tests of 16 and 4 bits, on 20")
    values = json.loads(record.read_text())
    record.write_text(json.dumps(values | {"where": values["where"] | {"mlx": "0.1"}}))
    assert NOT_YET in doctor.verification()
    record.write_text("{")
    assert NOT_YET in doctor.verification()


@pytest.mark.slow
def test_a_wrong_family_is_named_now_and_later(record, monkeypatch):
    monkeypatch.setattr(WindowKVCache, "trim", lambda window, tokens: tokens)
    found = doctor.run_selftest(lambda *_: None)
    assert [outcome.name for outcome in found.wrong] == BOTH
    assert [row[:2] for row in found.findings()[2:]] == [(name, "wrong") for name in BOTH]
    assert "FAILED here for gemma3_text, bfloat16, gemma3_text, 4 bits on 20" in doctor.verification()


@pytest.mark.slow
@pytest.mark.full
def test_the_command_runs_every_family_and_exits_0(tmp_path):
    environment = os.environ | {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "specdec_cli", "doctor", "--selftest"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\nself-test\t" in done.stdout and "\twrong" not in done.stdout
    assert json.loads(next(tmp_path.rglob("selftest.json")).read_text())["passed"] >= 14
