"""What `specdec tune` can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What is trained, on which text, for how long, and where it is kept."""

    pair: str | None = None
    target: str | None = None
    draft: str | None = None
    adapter: str | None = None
    text: list[Path] | None = None
    chats: bool = False
    what: str | None = None
    minutes: int = 20
    predict_only: bool = False
    seed: int = 0
    out: str | None = None
    write: bool = False
    offline: bool = False
