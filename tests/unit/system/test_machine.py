"""What machines say about themselves, in their own words."""

import errno
import os
import time
from types import SimpleNamespace

import pytest

from specdec_cli.system.machine import awake, machine_state, temporary_folder

BATTERY = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=4522083)\t81%; discharging; 5:12 remaining\n"
MAINS = "Now drawing from 'AC Power'\n -InternalBattery-0 (id=4522083)\t100%; charged; 0:00 remaining\n"
SETTINGS = "Currently in use:\n standby         1\n lowpowermode    {}\n sleep           1\n"
NO_LIMIT = "Note: No thermal warning level has been recorded\nNote: No performance warning level has been recorded\n"
LIMIT = "2026-01-31 10:00:00 +0100 CPU Power notify\n\tCPU_Scheduler_Limit \t= 100\n\tCPU_Speed_Limit \t= 62\n"


def mac(**answers):
    """A Mac that answers `pmset_g_batt` and the like; nothing to other questions."""
    return lambda command: answers.get("_".join(command).replace("-", "").replace("com.apple.system.", ""), "")


@pytest.mark.parametrize(
    ("supply", "saves", "level", "told"),
    [(MAINS, 0, 0, ("mains", False, "nominal")), (BATTERY, 1, 2, ("battery", True, "heavy"))],
)
def test_a_mac_tells_its_power_its_mode_and_its_heat(supply, saves, level, told):
    pressure = f"com.apple.system.thermalpressurelevel {level}\n"
    run = mac(pmset_g_batt=supply, pmset_g=SETTINGS.format(saves), notifyutil_g_thermalpressurelevel=pressure)
    found = machine_state("darwin", run)
    assert (found.power, found.low_power_mode, found.thermal) == told
    assert found.load is None or found.load >= 0


@pytest.mark.parametrize(
    ("told", "thermal"), [(LIMIT, "speed limit 62 %"), (LIMIT.replace("62", "100"), "nominal"), (NO_LIMIT, None)]
)
def test_without_a_pressure_level_the_speed_limit_tells(told, thermal):
    assert machine_state("darwin", mac(pmset_g_therm=told)).thermal == thermal


def test_linux_tells_battery_and_profile(tmp_path):
    (tmp_path / "BAT0").mkdir()
    (tmp_path / "BAT0" / "status").write_text("Discharging\n")
    (tmp_path / "profile").write_text("low-power\n")
    found = machine_state("linux", supplies=tmp_path, profile=tmp_path / "profile")
    assert (found.power, found.low_power_mode, found.thermal) == ("battery", True, None)
    assert machine_state("linux", supplies=tmp_path, profile=tmp_path / "none").low_power_mode is None


@pytest.fixture
def caffeinate(tmp_path, monkeypatch):
    """A `caffeinate` on PATH that writes its arguments and process id, and stays."""
    program = tmp_path / "caffeinate"
    called = tmp_path / "called"
    program.write_text(f'#!/bin/sh\necho "$@" $$ >{called}.new\nmv {called}.new {called}\nexec sleep 60\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return called


@pytest.mark.slow
def test_a_mac_is_kept_awake_as_long_as_the_context_lasts(caffeinate):
    with awake("darwin"):
        while not caffeinate.exists():
            time.sleep(0.01)
        *arguments, pid = caffeinate.read_text().split()
        assert arguments == ["-i", "-w", str(os.getpid())]
        os.kill(int(pid), 0)  # it runs
        assert os.getpgid(int(pid)) != os.getpgid(0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Makes a folder the temporary one; what is wrong with it."""
    for name in ("TMP", "TEMP", "TEMPDIR"):
        monkeypatch.delenv(name, raising=False)

    def problem(folder, inner="mlx/1/cpu"):
        monkeypatch.setenv("TMPDIR", str(folder))
        named, found = temporary_folder(inner)
        assert named == str(folder)
        return found

    return problem


def test_a_temporary_folder_that_can_be_used_has_no_problem_and_keeps_nothing(temporary, tmp_path):
    assert temporary(tmp_path) == "" and not list(tmp_path.iterdir())


def test_a_temporary_folder_is_missing_a_file_or_without_a_name(temporary, tmp_path):
    (tmp_path / "file").touch()
    assert {temporary(folder) for folder in (tmp_path / "none", tmp_path / "file", "")} == {"there is no such folder"}


def test_a_temporary_folder_is_read_only_full_or_nothing_runs_from_it(temporary, tmp_path, monkeypatch):
    """Also where only the folder in it is another user's."""
    (tmp_path / "mlx").mkdir()
    for number in (errno.EROFS, errno.EACCES, errno.ENOSPC):

        def refuse(dir, number=number):
            raise OSError(number, os.strerror(number), str(dir))

        with monkeypatch.context() as patch:
            patch.setattr("specdec_cli.system.machine.TemporaryFile", refuse)
            assert temporary(tmp_path) == f"{tmp_path / 'mlx'} cannot be written: {os.strerror(number)}"
    monkeypatch.setattr("os.ST_NOEXEC", 8, raising=False)
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=8))
    assert temporary(tmp_path) == "programs cannot run from there (noexec)"
