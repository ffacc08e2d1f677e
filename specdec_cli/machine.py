"""This computer as it is now: memory, battery, low-power mode, heat, other programs.

Law: asked, never guessed: what the system does not tell is None or `unknown`, and no question takes more than two
seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Run = Callable[[list[str]], str]
Power = Literal["mains", "battery", "unknown"]
SUPPLIES = Path("/sys/class/power_supply")
PROFILE = Path("/sys/firmware/acpi/platform_profile")
# OSThermalPressureLevel as macOS numbers it.
PRESSURE = ("nominal", "moderate", "heavy", "trapping", "sleeping")
PRESSURE_KEY = "com.apple.system.thermalpressurelevel"


@dataclass(frozen=True, slots=True)
class MachineState:
    """What slows a machine down; None where it does not say. `load` is the one-minute load average."""

    power: str | None = None
    low_power_mode: bool | None = None
    thermal: str | None = None
    load: float | None = None


def physical_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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


def _low_power_mode(answer: str) -> bool | None:
    """`lowpowermode 1` among the settings in use; `powermode 1` where a Mac has three modes."""
    found = re.search(r"^\s*(?:lowpowermode|powermode)\s+(\d)", answer, re.MULTILINE)
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


def power_source(system: str = sys.platform, run: Run | None = None, supplies: Path = SUPPLIES) -> Power:
    """macOS is asked by `pmset -g batt`, Linux by its power supplies; one without any runs on mains."""
    if system == "darwin":
        answer = (run or answer_of)(["pmset", "-g", "batt"])
        return "mains" if "'AC Power'" in answer else "battery" if "'Battery Power'" in answer else "unknown"
    if not system.startswith("linux"):
        return "unknown"
    try:
        states = [path.read_text().strip() for path in supplies.glob("*/status")]
    except OSError:
        return "unknown"
    return "battery" if "Discharging" in states else "mains"


def answer_of(command: list[str]) -> str:
    """What `command` prints; nothing where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
