"""One program at a time in a folder of ours. Law: the lock is the folder's own, so no file is left behind.

flock(2) is dropped by the system when its holder ends, however it ends; Linux and macOS lock folders as they do files.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 10.0
STEP_SECONDS = 0.02


@contextmanager
def locked(
    folder: Path, patience_seconds: float = PATIENCE_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Makes the folder and holds its lock. Raises: BlockingIOError after `patience_seconds`, OSError.

    A file system without locks is used without one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _wait(descriptor, patience_seconds, sleep)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, patience_seconds: float, sleep: Callable[[float], None]) -> None:
    waited = 0.0
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited >= patience_seconds:
                raise
        except OSError:
            return None
        sleep(STEP_SECONDS)
        waited += STEP_SECONDS
