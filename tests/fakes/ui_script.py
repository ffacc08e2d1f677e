"""Scripted events for the display tests: every kind that a token can be, wide and invisible text; and a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading
from dataclasses import replace
from typing import TextIO

import pyte

from specdec_cli.core.events import Event, Finish, Prefill, Round, RoundDone, Start
from specdec_cli.core.gain import Gain
from specdec_cli.terminal.panel.state import PanelState

START = Start(
    target="org/Target-1B",
    draft="org/Draft",
    drafter="model",
    rule="coupled",
    k=4,
    temperature=0.0,
    seed=7,
    prompt_tokens=1234,
    max_tokens=100,
    dtype="bfloat16",
    device="metal",
    caches={"target": ("kv",)},
)
PREFILL = Prefill(1234, 0, 0.4)


def drafted(index: int, pieces: list[str], accepted: int, following: str, drafter: str = "model") -> RoundDone:
    """A round: 2.1 ms of drafting if anything was drafted, 9.4 ms of verifying."""
    ids = tuple(range(len(pieces)))
    seconds = 0.0021 if pieces else 0.0
    judged = Round(index, drafter, ids, accepted, 99, (*ids[:accepted], 99), seconds, 0.0094)
    return RoundDone(judged, tuple(pieces), following, "".join(pieces[:accepted]) + following)


ROUNDS = (
    drafted(0, [], 0, "def"),
    drafted(1, [" read", "_lines", "(", "path"], 4, "):"),
    drafted(2, ["\n    ", "with", "日本", "\x1b[2J"], 2, "\topen"),
    drafted(3, ["(", "path", ")", "\n"], 3, " as"),
    drafted(4, [" f", ":"], 0, " handle"),
)
ANSWER = "def read_lines(path):\n    with\topen(path) as handle"


def finish(reason: str = "stop", plain_step_seconds: float | None = 0.012, tail: str = "") -> Finish:
    """The end of ROUNDS, with the figures of its own fold, and a gain that is known to a tenth."""
    stats, gain = folded().stats, None
    if plain_step_seconds is not None:
        speedup = plain_step_seconds * (stats.emitted_tokens - 1) / stats.decode_seconds
        gain = Gain(speedup, speedup / 1.1, speedup * 1.1, 0.35, 0.3, 0.42)
    stats = replace(stats, gain=gain)
    return Finish(reason, ANSWER + tail, (), tail, stats.to_dict())


def script(reason: str = "stop") -> list[Event]:
    """A whole reply."""
    return [START, PREFILL, *ROUNDS, finish(reason)]


def folded(rounds: tuple[RoundDone, ...] = ROUNDS, start: Start = START, name: str = "demo") -> PanelState:
    """The state after Start, Prefill and these rounds."""
    state = PanelState(name=name).apply(start).apply(PREFILL)
    for done in rounds:
        state = state.apply(done)
    return state


GAIN = Gain(1.4, 1.12, 1.71, 0.35, 0.3, 0.42)
WHY = "parked: 1.2 tokens a round, in the time of 1.6 plain ones"


def measured(rounds: tuple[RoundDone, ...], gain: Gain | None = GAIN) -> tuple[RoundDone, ...]:
    """The rounds, each with what drafting gained so far."""
    return tuple(replace(done, gain=gain) for done in rounds)


def undrafted() -> PanelState:
    """Five plain rounds of a reply that could draft."""
    plain = (replace(done, round=replace(done.round, why=WHY)) for done in [drafted(n, [], 0, "x") for n in range(5)])
    return folded(tuple(plain), replace(START, k="auto"))


class Terminal:
    """A pseudo-terminal with a screen behind it; `out` and `err` are two streams to that one terminal."""

    def __init__(self, columns: int, rows: int) -> None:
        self._master, self._slave = pty.openpty()
        self.out: TextIO = os.fdopen(os.dup(self._slave), "w", encoding="utf-8")
        self.err: TextIO = os.fdopen(os.dup(self._slave), "w", encoding="utf-8")
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self.written = b""
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """The window changes its size; what was written before reached it in the old one."""
        self.settle()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        with self._lock:
            self.screen.resize(rows, columns)

    def settle(self) -> None:
        """Waits until all that was written is on the screen."""
        mark = b"\x1b[999;1z"  # means nothing to a screen
        with self._lock:
            seen = self.written.count(mark)
        os.write(self._slave, mark)
        while True:
            with self._lock:
                if self.written.count(mark) > seen:
                    self.written = self.written.replace(mark, b"")
                    return

    def lines(self) -> list[str]:
        """The screen's rows without what is empty at their ends and at the bottom."""
        self.settle()
        with self._lock:
            rows = [row.rstrip() for row in self.screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def scrolled(self) -> list[str]:
        """The rows that have left the screen at its top."""
        self.settle()
        with self._lock:
            rows = self.screen.history.top
            return ["".join(row[column].data for column in range(self.screen.columns)).rstrip() for row in rows]

    def close(self) -> None:
        """Hangs up."""
        self.out.close()
        self.err.close()
        os.close(self._slave)
        self._reader.join(5)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            with self._lock:
                self.written += data
                self._stream.feed(data)
