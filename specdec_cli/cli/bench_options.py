"""The options of `specdec bench` that other commands have not, or have for one value only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specdec_cli.core.errors import UsageError
from specdec_cli.core.kinds import DEFAULT_RULE
from specdec_cli.core.request import MAX_K

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ContenderOptions:
    """One target, and the drafts to try with it."""

    pair: str | None = None
    target: str | None = None
    draft: list[str] | None = None
    offline: bool = False
    force: bool = False
    draft_context: str | None = None


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured, for how long, and where the result goes."""

    k: str = "0-8,auto"
    kinds: str | None = None
    prompts: Path | None = None
    max_tokens: int | None = None
    time_budget: str = "2m"
    write: bool = False
    export: list[Path] | None = None
    compare: tuple[Path, Path] | None = None
    temps: list[float] | None = None
    drafters: list[str] | None = None
    raw: bool = False
    json: bool = False
    quiet: bool = False
    rule: str = DEFAULT_RULE
    seed: int = 0
    cooldown: str = "0s"
    fixed_length: bool = False


def parse_lengths(text: str) -> tuple[int | Literal["auto"], ...]:
    """`0-4,8,auto` -> (0, 1, 2, 3, 4, 8, auto), each once. 0, the baseline, is always measured.

    Raises: UsageError for anything else, or out of bounds.
    """
    found: list[int | Literal["auto"]] = []
    for part in map(str.strip, text.split(",")):
        bounds = re.fullmatch(r"(\d+)\s*(?:-\s*(\d+))?", part)
        if part == "auto":
            found.append("auto")
        elif bounds is None:
            problem = f"-k {text}: {part or 'nothing'} is neither a number, a range nor auto"
            raise UsageError(problem, "for example: -k 0-8,auto")
        else:
            first, last = int(bounds[1]), int(bounds[2] or bounds[1])
            if last > MAX_K or first > last:
                problem = f"is outside 0 to {MAX_K}" if last > MAX_K else "runs backwards"
                raise UsageError(f"-k {text}: {part} {problem}", f"the widest range: -k 0-{MAX_K}")
            found += range(first, last + 1)
    if not any(found):
        raise UsageError(f"-k {text} drafts nothing, and K 0 is already the baseline", "for example: -k 0-8,auto")
    return tuple(dict.fromkeys(found))


def parse_seconds(option: str, text: str) -> float:
    """`90`, `90s`, `2m`, `1.5m` or `1h` in seconds.

    Raises: UsageError for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|)", text.strip())
    if found is None:
        raise UsageError(f"{option} {text} is not a time", f"seconds, minutes or hours: {option} 90s, {option} 2m")
    return float(found[1]) * UNITS[found[2]]
