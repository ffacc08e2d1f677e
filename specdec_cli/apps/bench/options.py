"""What `specdec bench` can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec_cli.core.kinds import DEFAULT_RULE


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
    temps: list[float] | None = None
    drafters: list[str] | None = None
    raw: bool = False
    json: bool = False
    quiet: bool = False
    rule: str = DEFAULT_RULE
    seed: int = 0
    cooldown: str = "0s"
    fixed_length: bool = False
