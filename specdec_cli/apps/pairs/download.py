"""What a pull shows. Bytes never decrease, and a stall is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from specdec_cli.apps.pairs.screen import print_checks
from specdec_cli.core.format import SEPARATOR, clock, size
from specdec_cli.core.progress import OnStep, Step
from specdec_cli.hub import OnBytes
from specdec_cli.pairs.verdict import PairVerdict
from specdec_cli.terminal.display import print_line
from specdec_cli.terminal.panel.status import StatusLine

# A pace of fewer seconds is chance.
PACE_SECONDS = 2.0


class PullScreen:
    """Everything a pull shows, on `err`."""

    def __init__(self, err: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._err, self._now = err, now

    def line(self, text: str) -> None:
        print_line(self._err, text)

    def verdict(self, found: PairVerdict) -> None:
        print_checks(self._err, found)

    @contextmanager
    def checking(self, name: str) -> Iterator[OnStep]:
        with StatusLine(self._err, f"checking {name}") as line:
            yield line.say

    @contextmanager
    def progress(self, total_bytes: int) -> Iterator[OnBytes]:
        """On one row the bytes of all files, their pace, and the file that comes; each that came is a line above it."""
        came, began = dict[str, int](), self._now()
        with StatusLine(self._err, "downloading", clock=self._now, awaits_data=True) as line:

            def report(path: str, done_bytes: int, file_bytes: int, /) -> None:
                before = came.get(path, -1)
                came[path] = max(done_bytes, before)
                if before < file_bytes <= done_bytes:
                    line.tell(f"{path}  {size(file_bytes)}")
                done, seconds = min(sum(came.values()), total_bytes), self._now() - began
                notes = [path]
                if done and seconds >= PACE_SECONDS:
                    left = (total_bytes - done) * seconds / done
                    notes = [f"{size(round(done / seconds))}/s", f"{clock(left)} left", path]
                line.say(Step("", done, total_bytes, "bytes", SEPARATOR.join(notes)))

            yield report
