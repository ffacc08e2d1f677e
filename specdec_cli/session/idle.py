"""Doing something once a person has waited. Law: it is done on the main thread, where mlx's streams live."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_SECONDS = 60.0


@contextmanager
def when_idle(act: Callable[[], None], seconds: float = IDLE_SECONDS) -> Iterator[None]:
    """Calls `act` once if this context lasts `seconds`, while it waits for input; never in another thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, lambda number, frame: act())
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining)
        signal.signal(signal.SIGALRM, handler)
