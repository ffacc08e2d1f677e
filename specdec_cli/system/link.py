"""A rank's line to the process that started it. It wakes the other ranks and is woken by it, and ends where it ends.

Without one (`mlx.launch`) nobody is woken: the ranks wait for each other in an all-reduce, which keeps a core busy.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import NamedTemporaryFile

DESCRIPTOR = "_SPECDEC_LINK"
WAKE, MET, REST, BEAT = b"w", b"m", b"r", b"."
# A machine that was cut off hears no end, so that a rank gives up after so long without a beat, which come each second.
SILENCE_SECONDS = 120.0
# How long the ranks may take to meet: mlx waits for ever, and no other thread of Python runs meanwhile.
MEETING_SECONDS = 20
# What rank 0 may take to give the terminal back, and how long it waits to be told why another rank was lost.
ENDING_SECONDS, TOLD_SECONDS = 3.0, 5.0


class Link:
    """Of this rank, over the descriptor that the environment names."""

    def __init__(self, descriptor: int, leads: bool) -> None:
        self._descriptor, self._leads = descriptor, leads
        self._woken = threading.Semaphore(0)
        threading.Thread(target=self._watch, daemon=True).start()

    def wake(self) -> None:
        """Rank 0 wakes the others; they wait for that."""
        if self._leads:
            os.write(self._descriptor, WAKE)
        else:
            self._woken.acquire()

    def meeting(self) -> None:
        """Before the ranks meet: what takes too long ends this one; of rank 0 its starter sees to that."""
        if not self._leads:
            signal.alarm(MEETING_SECONDS)

    def met(self, rests: bool = False) -> None:
        """They have, now and then. `rests`: it may take any time until they do again."""
        if self._leads:
            os.write(self._descriptor, REST if rests else MET)
        else:
            signal.alarm(0)

    def _watch(self) -> None:
        while data := self._read():
            for _ in range(data.count(WAKE)):
                self._woken.release()
        if self._leads:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(ENDING_SECONDS)
        os._exit(1)

    def _read(self) -> bytes:
        patience = None if self._leads else SILENCE_SECONDS
        heard = select.select([self._descriptor], [], [], patience)[0]
        return os.read(self._descriptor, 4096) if heard else b""


@cache
def link() -> Link | None:
    """That of this process; None where it was not started as a rank by another of ours."""
    named = os.environ.get(DESCRIPTOR)
    return Link(int(named), os.environ.get("MLX_RANK") == "0") if named else None


@contextmanager
def ring_file(text: str) -> Iterator[dict[str, str]]:
    """The variable that names mlx a file of this text, which is there for as long as the context."""
    with NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield {"MLX_HOSTFILE": file.name}
