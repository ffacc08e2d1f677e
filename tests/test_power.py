import pytest

from specdec_cli.machine import power_source

MAINS = "Now drawing from 'AC Power'\n -InternalBattery-0 (id=123)\t95%; charging; 0:20 remaining present: true\n"
BATTERY = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=123)\t95%; discharging; 5:20 remaining\n"


@pytest.mark.parametrize(("told", "found"), [(MAINS, "mains"), (BATTERY, "battery"), ("", "unknown")])
def test_macos_is_asked_by_pmset(told, found):
    asked = []
    assert power_source("darwin", lambda command: asked.append(command) or told) == found
    assert asked == [["pmset", "-g", "batt"]]


@pytest.mark.parametrize(
    ("states", "found"), [([], "mains"), (["Charging"], "mains"), (["Full", "Discharging"], "battery")]
)
def test_linux_by_its_power_supplies(tmp_path, states, found):
    for i, state in enumerate(states):
        (tmp_path / f"BAT{i}").mkdir()
        (tmp_path / f"BAT{i}" / "status").write_text(f"{state}\n")
    assert power_source("linux", supplies=tmp_path) == found


def test_elsewhere_nobody_knows():
    assert power_source("win32") == "unknown"
