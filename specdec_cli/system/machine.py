"""This computer as it is now: memory, power, low-power mode, thermal pressure, load.

Nothing is guessed: what the system does not say is None or `unknown`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryFile
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
    """What may slow the machine down, None if unknown. `load` is the one-minute load average."""

    power: str | None = None
    low_power_mode: bool | None = None
    thermal: str | None = None
    load: float | None = None


# What to say beside a result whose machine had more to do than cores.
BUSY = "other programs were running: rerun on an idle machine"


def is_busy(load: float | None, cores: int | None) -> bool:
    """Whether more programs wanted to compute than there are cores; unknown is quiet."""
    return load is not None and cores is not None and load > cores


def warning_of_load(wanted: bool) -> str:
    """BUSY if it is `wanted`, and this machine is so now. Ask before computing, which counts too."""
    with suppress(OSError):
        return BUSY if wanted and is_busy(os.getloadavg()[0], os.cpu_count()) else ""
    return ""


def physical_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# Where C++ looks for the temporary folder, in this order (std::filesystem::temp_directory_path).
TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
# More than any library that mlx compiles.
TRIED_BYTES = 1 << 20


def temporary_folder(inner: str) -> tuple[str, str]:
    """(the temporary folder, why no library can be run that is written to `inner` in it; empty where one can)."""
    folder = next((os.environ[name] for name in TEMPORARY if name in os.environ), "/tmp")
    if not folder or not Path(folder).is_dir():
        return folder, "there is no such folder"
    place = next(path for path in (Path(folder, inner), *Path(folder, inner).parents) if path.is_dir())
    try:
        if os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 0):
            return folder, "programs cannot run from there (noexec)"
        with TemporaryFile(dir=place) as file:
            file.write(bytes(TRIED_BYTES))
            file.flush()
    except OSError as error:
        return folder, f"{place} cannot be written: {error.strerror}"
    return folder, ""


def machine_state(
    system: str = sys.platform, run: Run | None = None, supplies: Path = SUPPLIES, profile: Path = PROFILE
) -> MachineState:
    """The state now: from `pmset` and `notifyutil` on macOS, from /sys on Linux."""
    ask = run or answer_of
    power, thermal, load = power_source(system, ask, supplies), None, None
    if system == "darwin":  # the kernel's thermal pressure level; else the CPU speed limit
        level = re.search(rf"{re.escape(PRESSURE_KEY)}\s+([0-4])\b", ask(["notifyutil", "-g", PRESSURE_KEY]))
        limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", ask(["pmset", "-g", "therm"]))
        slowed = None if limit is None else "nominal" if limit[1] == "100" else f"speed limit {limit[1]} %"
        thermal = PRESSURE[int(level[1])] if level else slowed
    with suppress(OSError):
        load = round(os.getloadavg()[0], 2)
    return MachineState(None if power == "unknown" else power, low_power_mode(system, ask, profile), thermal, load)


def low_power_mode(system: str = sys.platform, run: Run | None = None, profile: Path = PROFILE) -> bool | None:
    """Whether the machine saves power: from `pmset -g` on macOS, from /sys on Linux; None if unknown.

    macOS says `lowpowermode`, or `powermode` on a Mac with three modes; 1 is low power.
    """
    if system == "darwin":
        answer = (run or answer_of)(["pmset", "-g"])
        found = re.search(r"^\s*(?:lowpowermode|powermode)\s+(\d)", answer, re.MULTILINE)
        return None if found is None else found[1] == "1"
    with suppress(OSError):
        return profile.read_text(encoding="utf-8").strip() in ("low-power", "quiet")
    return None


def power_source(system: str = sys.platform, run: Run | None = None, supplies: Path = SUPPLIES) -> Power:
    """From `pmset -g batt` on macOS, from /sys on Linux; a machine without power supplies there is on mains."""
    if system == "darwin":
        answer = (run or answer_of)(["pmset", "-g", "batt"])
        return "mains" if "'AC Power'" in answer else "battery" if "'Battery Power'" in answer else "unknown"
    if system.startswith("linux"):
        with suppress(OSError):
            states = [path.read_text().strip() for path in supplies.glob("*/status")]
            return "battery" if "Discharging" in states else "mains"
    return "unknown"


@contextmanager
def awake(system: str = sys.platform) -> Iterator[None]:
    """Keeps a Mac from idle sleep in this context; its screen may go dark. Nothing elsewhere."""
    # `-w`: it ends with this process, however that ends. A group of its own: Ctrl-C is not for it.
    command = ["caffeinate", "-i", "-w", str(os.getpid())]
    process = None
    if system == "darwin":
        with suppress(OSError):
            process = subprocess.Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        if process is not None:
            process.terminate()
            process.wait()


def answer_of(command: list[str]) -> str:
    """The output of `command`; empty where it cannot be run or takes more than two seconds."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
