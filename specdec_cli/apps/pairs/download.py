"""What a pull shows. Bytes never decrease, and a stall is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from specdec_cli.core.format import SEPARATOR, clock, size
from specdec_cli.core.progress import OnStep, Step
from specdec_cli.hub import OnBytes
from specdec_cli.terminal.panel.status import StatusLine

# A pace of fewer seconds is chance.
PACE_SECONDS = 2.0


@contextmanager
def checking(name: str) -> Iterator[OnStep]:
    """A report of how much of `name` was read, on a row of stderr for as long as the context lasts."""
    with StatusLine(sys.stderr, f"checking {name}") as line:
        yield line.say


@contextmanager
def downloading(err: TextIO, total_bytes: int, now: Callable[[], float] = time.monotonic) -> Iterator[OnBytes]:
    """On one row the bytes of all files, their pace, and the file that comes; each that came is a line above it."""
    came, began = dict[str, int](), now()
    with StatusLine(err, "downloading", clock=now, awaits_data=True) as line:

        def report(path: str, done_bytes: int, file_bytes: int, /) -> None:
            before = came.get(path, -1)
            came[path] = max(done_bytes, before)
            if before < file_bytes <= done_bytes:
                line.tell(f"{path}  {size(file_bytes)}")
            done, seconds = min(sum(came.values()), total_bytes), now() - began
            notes = [path]
            if done and seconds >= PACE_SECONDS:
                left = (total_bytes - done) * seconds / done
                notes = [f"{size(round(done / seconds))}/s", f"{clock(left)} left", path]
            line.say(Step("", done, total_bytes, "bytes", SEPARATOR.join(notes)))

        yield report
