"""Values of options that several commands read."""

from __future__ import annotations

import re

from specdec_cli.core.errors import UsageError

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
NEVER = ("0", "never")
SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
OFF = ("0", "off")


def parse_seconds(option: str, text: str) -> float:
    """`90`, `90s`, `2m`, `1.5m` or `1h` in seconds.

    Raises: UsageError for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", text.strip())
    if found is None:
        raise UsageError(f"{option} {text} is not a time", f"seconds, minutes or hours: {option} 90s, {option} 2m")
    return float(found[1]) * UNITS[found[2]]


def parse_idle(text: str) -> float | None:
    """Seconds until idle models are unloaded; None keeps them. Raises: UsageError for what is not a time."""
    return None if text in NEVER else parse_seconds("--idle-unload", text)


def parse_size(option: str, text: str) -> int:
    """`500MB`, `8 GB`, `1.5g`, `off` or a number of bytes; off is 0. Raises: UsageError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if text.strip().lower() in OFF:
        return 0
    if found is None:
        raise UsageError(f"{option} {text} is not a size", f"for example: {option} 8GB, or {option} off")
    return round(float(found[1]) * SIZES[found[2]])
