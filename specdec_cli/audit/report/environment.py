"""This machine, for a report: chip, sizes, versions, and what may slow it down now. Law: nothing is guessed."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import asdict
from typing import Any

from specdec_cli import __version__
from specdec_cli.machine import Run, answer_of, machine_state, physical_bytes

# `powermode` of pmset, on a Mac that has three.
POWER_MODES = ("automatic", "low power", "high power")
WIRED_LIMIT = "iogpu.wired_limit_mb"


def environment() -> dict[str, Any]:
    """What does not change while a report is made."""
    from specdec_cli.engine import device
    from specdec_cli.engine.device import device_info

    return {
        "chip": device.device_name(),
        "backend": device.backend(),
        "system": system_name(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": physical_bytes(),
        "working_set_bytes": device.working_set_bytes(),
        "wired_limit_mb": wired_limit_mb(),
        "float32_products": device.float32_products(),
        "device": {name: value for name, value in device_info().items() if isinstance(value, str | int)},
        "versions": {"specdec": __version__, "python": platform.python_version(), **device.versions()},
    }


def state() -> dict[str, Any]:
    """What may change: power, heat, load and wired memory."""
    return asdict(machine_state()) | {"power_mode": power_mode(), "wired_bytes": wired_bytes()}


def system_name() -> str:
    """macOS with version and build; elsewhere the kernel and its release, never the host's name."""
    if sys.platform == "darwin":
        build = answer_of(["sw_vers", "-buildVersion"]).strip()
        return f"macOS {platform.mac_ver()[0]} {build}".strip()
    return f"{platform.system()} {platform.release()}"


def power_mode(system: str = sys.platform, run: Run | None = None) -> str | None:
    """The power mode of macOS in words, on a Mac with three; None where it is not said."""
    if system != "darwin":
        return None
    found = re.search(r"^\s*powermode\s+(\d)", (run or answer_of)(["pmset", "-g"]), re.MULTILINE)
    return None if found is None or int(found[1]) >= len(POWER_MODES) else POWER_MODES[int(found[1])]


def wired_limit_mb(system: str = sys.platform, run: Run | None = None) -> int | None:
    """The most that the GPU may keep wired, as set by the user; 0 is the system's own limit."""
    answer = (run or answer_of)(["sysctl", "-n", WIRED_LIMIT]).strip() if system == "darwin" else ""
    return int(answer) if answer.isdigit() else None


def wired_bytes(system: str = sys.platform, run: Run | None = None) -> int | None:
    """Memory of the whole machine that cannot be paged out, by macOS's `vm_stat`; None elsewhere."""
    if system != "darwin":
        return None
    answer = (run or answer_of)(["vm_stat"])
    page, wired = re.search(r"page size of (\d+) bytes", answer), re.search(r"Pages wired down:\s+(\d+)", answer)
    return int(page[1]) * int(wired[1]) if page and wired else None
