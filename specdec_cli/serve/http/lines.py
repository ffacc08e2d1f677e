"""The end of an answer by its lines, for editors (pure): llama.cpp's `n_indent` and `t_max_predict_ms`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

BLANK = " \t"


@dataclass(frozen=True, slots=True)
class LineLimits:
    """A line with less than `indent` blanks before it ends the answer, and so does one that ends after `seconds`.

    0 is no limit. The first line goes on with one that is there already, so its blanks say nothing.
    """

    indent: int = 0
    seconds: float = 0.0


class Lines:
    """Takes text as it comes; what may have to be cut is held back. `over` once it came to an end."""

    def __init__(self, limits: LineLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._began: float | None = None
        self._held = ""
        self._fresh = False
        self.over = False

    def feed(self, text: str) -> str:
        """The text that may be shown; empty once it is over."""
        if self.over or not text:
            return ""
        self._began = self._clock() if self._began is None else self._began
        shown, self._held = self._held + text, ""
        if self._limits.indent:
            shown = self._indented(shown)
        late = self._limits.seconds and self._clock() - self._began > self._limits.seconds
        if late and not self.over and "\n" in shown:
            self.over, shown = True, shown[: shown.rindex("\n")]
        return shown

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return "" if self.over else held

    def _indented(self, text: str) -> str:
        """As much of `text` as is indented enough; `_fresh`: it begins a line."""
        lines = re.split(r"(?<=\n)", text)
        kept = ""
        for place, line in enumerate(lines):
            words = line.lstrip(BLANK)
            begins = self._fresh or place > 0
            if begins and not words:
                self._held, self._fresh = line, True
                return kept
            if begins and words.strip() and len(line) - len(words) < self._limits.indent:
                self.over = True
                return kept
            kept += line
        self._fresh = False
        return kept
