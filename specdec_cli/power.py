"""Mains or battery. Law: an answer at once, or `unknown`; a laptop on battery computes at another speed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Power = Literal["mains", "battery", "unknown"]
SUPPLIES = Path("/sys/class/power_supply")


def power_source(
    system: str = sys.platform, run: Callable[[list[str]], str] | None = None, supplies: Path = SUPPLIES
) -> Power:
    """macOS is asked by `pmset -g batt`, Linux by its power supplies; one without any runs on mains."""
    if system == "darwin":
        told = (run or answer_of)(["pmset", "-g", "batt"])
        return "mains" if "'AC Power'" in told else "battery" if "'Battery Power'" in told else "unknown"
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
