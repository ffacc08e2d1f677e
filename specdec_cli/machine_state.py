"""What slows this machine down right now: battery, low-power mode, heat, other programs.

Law: asked, never guessed: what the system does not tell is None, and no question takes more than two seconds.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from specdec_cli.bench_result import MachineState
from specdec_cli.power import SUPPLIES, answer_of, power_source

Run = Callable[[list[str]], str]
PROFILE = Path("/sys/firmware/acpi/platform_profile")
# OSThermalPressureLevel as macOS numbers it.
PRESSURE = ("nominal", "moderate", "heavy", "trapping", "sleeping")
PRESSURE_KEY = "com.apple.system.thermalpressurelevel"


def machine_state(
    system: str = sys.platform, run: Run | None = None, supplies: Path = SUPPLIES, profile: Path = PROFILE
) -> MachineState:
    """macOS is asked by `pmset` and `notifyutil`, Linux by its own files."""
    ask = run or answer_of
    power = power_source(system, ask, supplies)
    if system == "darwin":
        low, thermal = _low_power_mode(ask(["pmset", "-g"])), _pressure(ask)
    else:
        low, thermal = _saving(profile), None
    return MachineState(None if power == "unknown" else power, low, thermal, _load())


def _low_power_mode(told: str) -> bool | None:
    """`lowpowermode 1` among the settings in use; `powermode 1` where a Mac has three modes."""
    found = re.search(r"^\s*(?:lowpowermode|powermode)\s+(\d)", told, re.MULTILINE)
    return None if found is None else found[1] == "1"


def _pressure(ask: Run) -> str | None:
    """The kernel's own level; else whether a CPU speed limit is on."""
    level = re.search(rf"{re.escape(PRESSURE_KEY)}\s+(\d+)", ask(["notifyutil", "-g", PRESSURE_KEY]))
    if level is not None and int(level[1]) < len(PRESSURE):
        return PRESSURE[int(level[1])]
    limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", ask(["pmset", "-g", "therm"]))
    return None if limit is None else "nominal" if limit[1] == "100" else f"speed limit {limit[1]} %"


def _saving(profile: Path) -> bool | None:
    try:
        return profile.read_text(encoding="utf-8").strip() in ("low-power", "quiet")
    except OSError:
        return None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
