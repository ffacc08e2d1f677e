"""What the doctor finds on this machine, and its self-test with what is remembered of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import mlx.core as mx
import pytest

from fakes.command import Command
from specdec_cli.audit import doctor
from specdec_cli.engine import device
from specdec_cli.engine import load as listing
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.conformance import against_cpu, kernels, suite
from specdec_cli.engine.conformance.against_cpu import Kernel
from specdec_cli.engine.conformance.suite import Outcome
from specdec_cli.engine.load import architectures

FEW = ("gemma3_text", "qwen3_5", "olmo")
BOTH = ["gemma3_text, bfloat16", "gemma3_text, 4 bits"]
NOT_YET = "for this device: specdec doctor --selftest"


@pytest.fixture
def specdec(tmp_path, monkeypatch, capsys):
    return Command(tmp_path, monkeypatch, capsys)


def test_the_report_names_machine_versions_and_cache_and_exits_0(specdec):
    code, out, err = specdec("doctor")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert {"chip", "computes on", "memory", "mlx", "mlx-lm", "python", "model cache"} <= {row[0] for row in rows}
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


@pytest.mark.parametrize("there", [False, True])
def test_a_cache_folder_is_said_as_it_is_and_not_made(monkeypatch, tmp_path, there):
    folder = tmp_path if there else tmp_path / "none" / "hub"
    monkeypatch.setattr(doctor, "cache_folder", lambda: folder)
    monkeypatch.setattr("os.access", lambda path, mode: not there)
    value, note = {name: (value, note) for name, value, note in doctor.diagnose()}["model cache"]
    assert value == str(folder) and folder.exists() == there
    assert note.startswith("exists, " if there else "not there yet, ")
    assert note.endswith(" free, not writable" if there else " free")


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("refused", 0), ("wrong", 1)])
def test_into_a_pipe_each_result_comes_at_once_then_the_totals_and_wrong_tokens_exit_1(
    specdec, monkeypatch, status, code
):
    """The bug: `doctor --selftest | cat` said nothing for 40 seconds."""
    monkeypatch.setattr(suite, "run_suite", lambda *_: iter([Outcome("qwen3", status, detail="d")]))
    monkeypatch.setattr(kernels, "run_families", lambda _: iter([Outcome("qwen3, 4 bits", "refused", detail="no")]))
    found, out, err = specdec("doctor", "--selftest")
    lines = [line.split("\t") for line in out.splitlines()]
    assert (found, err, lines[:2]) == (code, "", [["qwen3, 4 bits", "refused", "no"], ["qwen3", status, "d"]])
    assert [line[0] for line in lines[2:]] == ["rollback logic, float32", "kernels real models use", "time"]
    found, out, err = specdec("doctor", "--selftest", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (found, err) == (code, "") and [line["name"] for line in lines] == ["qwen3, 4 bits", "qwen3"]
    assert lines[1]["proves"] == "rollback logic, float32"


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


def test_the_gpu_is_compared_with_the_cpu_where_it_is_asked_for(specdec, few, monkeypatch):
    monkeypatch.setenv("MLX_METAL_GPU_ARCH", "applegpu_g15s")
    monkeypatch.setattr(device, "compute_on", lambda name: None)
    monkeypatch.setattr(device, "backend", lambda: "metal")
    monkeypatch.setattr(against_cpu, "kernels", lambda: iter([Kernel("a", lambda n: mx.ones((n, 2)))]))
    monkeypatch.setattr(against_cpu, "compare_family", lambda family: Outcome("f", "pass"))
    monkeypatch.setattr(suite, "run_suite", lambda *_: iter(()))
    monkeypatch.setattr(kernels, "run_families", lambda _: iter(()))
    code, out, err = specdec("doctor", "--selftest", "--device", "gpu")
    lines = [line.split("\t") for line in out.splitlines()]
    assert (code, err, [line[:2] for line in lines[:2]]) == (0, "", [["a", "pass"], ["f", "pass"]])
    assert ["the GPU against the CPU", "2 of 2 passed"] in [line[:2] for line in lines]
    assert lines[2][0] == "products, 4 bits" and lines[2][2] == "as chosen for applegpu_g15s"


@pytest.mark.skipif(mx.is_available(mx.gpu), reason="there is a GPU here")
def test_a_machine_without_a_gpu_says_so_in_two_lines(specdec):
    code, out, err = specdec("doctor", "--selftest", "--device", "gpu")
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        f"error: --device gpu, and mlx has no GPU here: {device.device_name()}",
        "hint: --device cpu tests this CPU",
    ]


def test_a_device_that_is_none_is_refused_with_the_nearest(specdec):
    code, out, err = specdec("doctor", "--selftest", "--device", "gpus")
    assert (code, out, err) == (2, "", "error: --device gpus is none of cpu, gpu\nhint: the nearest: --device gpu\n")


def test_a_virtual_gpu_is_named_and_its_times_are_not_believed(monkeypatch):
    monkeypatch.setattr(device, "device_name", lambda: "Apple Paravirtual device")
    told = {name: note for name, _, note in doctor.diagnose()}
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
    told = [(value, note) for name, value, note in doctor.diagnose() if name == "macOS"]
    assert told == ([(system, doctor.TOO_OLD)] if warned else [])


@pytest.mark.slow
def test_a_passed_run_is_remembered_for_this_device_and_these_versions(few):
    assert NOT_YET in doctor.verification()
    seen = []
    found = doctor.run_selftest(lambda done, total, outcome: seen.append((done, total, outcome.name)))
    assert seen == [(at, 5, name) for at, name in enumerate([*BOTH, *FEW], 1)]
    assert not found.wrong and [row[:2] for row in found.findings()[3:]] == [("olmo", "refused")]
    said = "verified here: logic for 2 architectures in float32, kernels in 2 tests of 16 and 4 bits, on 20"
    assert doctor.verification().startswith(said)
    record = json.loads(few.read_text())
    few.write_text(json.dumps(record | {"where": record["where"] | {"mlx": "0.1"}}))
    assert NOT_YET in doctor.verification()
    few.write_text("{")
    assert NOT_YET in doctor.verification()


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
    environment = os.environ | {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "specdec_cli", "doctor", "--selftest"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\nrollback logic, float32\t" in done.stdout and "\twrong" not in done.stdout
    known = json.loads(next(tmp_path.rglob("selftest.json")).read_text())
    assert known["passed"] > 100 and known["families"] >= 14
