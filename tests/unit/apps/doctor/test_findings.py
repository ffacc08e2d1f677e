"""What the doctor finds on this machine and what is kept here; its self-test, with what is remembered of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import platformdirs
import pytest
from typer._completion_shared import install_bash

from specdec_cli.apps.doctor import findings as doctor
from specdec_cli.apps.doctor.findings import kept_here, places
from specdec_cli.core import jsonfile
from specdec_cli.engine import selftest
from specdec_cli.engine.cache.window import WindowKVCache
from specdec_cli.engine.selftest import Outcome
from specdec_cli.session.disk_entries import disk_cache_folder

BOTH = ["gemma3_text, bfloat16", "gemma3_text, 4 bits"]
NOT_YET = "for this device: specdec doctor --selftest"


def test_the_report_names_machine_versions_and_cache_and_exits_0(specdec):
    code, out, err = specdec("doctor")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    names = {"chip", "computes on", "memory", "specdec", "python", "model cache"}
    assert {f"✓ {name}" for name in names} <= {row[0] for row in rows}
    assert all(2 <= len(row) <= 3 for row in rows)


def test_the_temporary_folder_is_tried_where_mlx_compiles_into_it(specdec, monkeypatch, device_says, tmp_path):
    device_says(backend="cpu")
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


def test_a_virtual_gpu_is_named_and_its_times_are_not_believed(device_says):
    device_says(device_name="Apple Paravirtual device")
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
def test_an_m5_on_a_macos_that_mlxs_wheel_is_too_new_for_is_told(
    monkeypatch, device_says, chip, architecture, system, warned
):
    """The wheel is tagged for 26.0 and built for 26.2 (mlx#4525)."""
    device_says(device_name=chip, kernel_architecture=architecture)
    monkeypatch.setattr("platform.mac_ver", lambda: (system, ("", "", ""), "arm64"))
    told = [(well, value, note) for well, name, value, note in doctor.diagnose() if name == "macOS"]
    assert told == ([(False, system, doctor.TOO_OLD)] if warned else [])


@pytest.mark.slow
def test_a_passed_run_is_remembered_for_this_device_and_these_versions(record):
    assert NOT_YET in doctor.verification()
    seen = []
    outcomes, seconds = doctor.run_selftest(lambda done, total, outcome: seen.append((done, total, outcome.name)))
    assert seen == [(at, 2, name) for at, name in enumerate(BOTH, 1)]
    assert not doctor.wrong(outcomes) and not doctor.missed(outcomes)
    assert [row[0] for row in doctor.totals(outcomes, seconds)] == ["self-test", "time"]
    assert doctor.verification().startswith("verified here, in 2 tests of 16 and 4 bits, on 20")
    values = json.loads(record.read_text())
    record.write_text(json.dumps(values | {"where": values["where"] | {"mlx": "0.1"}}))
    assert NOT_YET in doctor.verification()
    record.write_text("{")
    assert NOT_YET in doctor.verification()


@pytest.mark.slow
def test_a_wrong_family_is_named_now_and_later(record, monkeypatch):
    monkeypatch.setattr(WindowKVCache, "trim", lambda window, tokens: tokens)
    outcomes, seconds = doctor.run_selftest(lambda *_: None)
    assert doctor.wrong(outcomes) == BOTH and doctor.totals(outcomes, seconds)[0][1] == "0 of 2 passed"
    assert [row[:2] for row in doctor.missed(outcomes)] == [(name, "wrong") for name in BOTH]
    assert "FAILED here for gemma3_text, bfloat16, gemma3_text, 4 bits on 20" in doctor.verification()


PACKAGE = Path(__file__).parents[4] / "specdec_cli"


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SPECDEC_MODELS", "SPECDEC_CONFIG", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_everything_that_the_package_writes_is_in_the_list(home):
    source = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    written = set(re.findall(r'user_\w+_path\("specdec"\) / "([\w.]+)"', source))
    for folder in ("chats", "heads", "tuned"):
        (platformdirs.user_data_path("specdec") / folder / "one").mkdir(parents=True)
    listed = {part for _, paths, _ in places() for path in paths for part in path.parts}
    assert {"chats", "tuned", "costs.json", "config.toml"} <= written and written - listed == set()


def test_what_is_there_has_its_size_and_the_command_that_removes_it(home, specdec):
    """A training that was killed was listed nowhere, and no command removed it."""
    data, state = platformdirs.user_data_path("specdec"), platformdirs.user_state_path("specdec")
    files = ("tuned/mine/adapters", "tuned/.training-1/state", "chats/20260101.jsonl")
    for path in (*(data / name for name in files), state / "history", state / "a b", home / ".zfunc/_specdec"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    tuned = (data / "tuned").relative_to(home)
    found = {name: (size, command) for name, size, command in kept_here()}
    assert {"chats", "typed lines", "tuned", "stopped trainings", "completion"} <= found.keys()
    assert found["tuned"] == ("1 kB", f"specdec rm NAME (in ~/{shlex.quote(str(tuned))})")
    assert found["stopped trainings"][1] == f"rm -r ~/{shlex.quote(str(tuned / '.training-1'))}"
    with jsonfile.locked(data / "tuned" / ".training-1"):  # a training that runs must not lose its files
        assert "stopped trainings" not in {name for name, *_ in kept_here()}
    removed = [shlex.split(command)[-1] for _, command in found.values() if command.startswith("rm ")]
    assert all(Path(path).expanduser().exists() for path in removed)
    shown = specdec("doctor")[1]
    assert "kept here\tsize\tremoved by\n" in shown and "chats\t1 kB\tspecdec chats delete --all" in shown


@pytest.mark.slow
def test_the_completion_is_removed_from_bash_with_the_line_that_reads_it(home):
    """Every new bash said that there is no such file."""
    install_bash(prog_name="specdec", complete_var="_SPECDEC_COMPLETE", shell="bash")
    bashrc = home / ".bashrc"
    bashrc.write_text(f"# mine\n{bashrc.read_text()}alias s=specdec\n")
    ((_, command),) = [row[1:] for row in kept_here() if row[0] == "completion"]
    subprocess.run(["bash", "-c", command], check=True)
    assert bashrc.read_text().split("\n") == ["# mine", "", "alias s=specdec", ""]
    assert "completion" not in {name for name, *_ in kept_here()}


def test_what_was_read_is_told_with_its_size_and_one_command_removes_it(home, specdec):
    folder = disk_cache_folder()
    folder.mkdir(parents=True)
    (folder / "f-1.safetensors").write_bytes(b"x" * 3000)
    ((size, command),) = [row[1:] for row in kept_here() if row[0] == "disk cache"]
    assert size == "3 kB" and command.startswith("specdec rm disk-cache ")
    assert "3 kB of conversations that were read: specdec rm disk-cache removes them" in specdec("pairs")[2]
    assert specdec("rm", "disk-cache", "-y")[0] == 0 and not folder.exists()
    assert specdec("rm", "disk-cache", "-y")[0] == 0
    assert "conversations that were read" not in specdec("pairs")[2]
