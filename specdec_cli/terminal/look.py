"""How replies are shown. The command line's options are these fields, so nothing here imports rich."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True)
class ReplayLook:
    """How an answer is shown."""

    panel: bool | None = None
    colour_answer: bool = True
    rounds: bool = False
    quiet: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Look(ReplayLook):
    """What is shown beside the answer, and in which form."""

    json: bool = False
    verbose: bool = False
    trace: Path | None = None

    def is_watched(self, err: TextIO) -> bool:
        """Whether a person sees the closing lines on `err`."""
        from specdec_cli.terminal.terminal import is_terminal

        return not (self.quiet or self.json) and is_terminal(err)
