"""The servers that this machine's user runs, each a file in the state folder.

Law: a server holds its file's lock until its process ends, however that ends. A file whose lock is free is what a
killed one left, whatever process has its id now.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol, TextIO

import platformdirs

from specdec_cli.core.jsonfile import NotJson, parse_object
from specdec_cli.core.readfile import open_file

FILE_BYTES = 1024
# No process id is larger, and no size or time.
MOST_PID, MOST = 1 << 22, 1 << 62
# A log that is longer begins anew, and the one before it stays as OLDER; of so many servers they are kept.
LOG_BYTES, MOST_LOGS, OLDER = 1_000_000, 16, ".log.old"


class Holds(Protocol):
    """Tells other processes what a server holds."""

    def __call__(self, weight_bytes: int, cache_bytes: int, loading: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class RunningServer:
    """`since`: seconds of the epoch; `weight_bytes` of its models are in memory, none while these are unloaded.

    The caches of its conversations may take `cache_bytes` more. `loading`: its models are on their way into memory.
    """

    pid: int
    pair: str
    url: str
    since: float
    weight_bytes: int = 0
    cache_bytes: int = 0
    loading: bool = False

    @property
    def held_bytes(self) -> int:
        """What no other process should count on."""
        return self.weight_bytes + self.cache_bytes

    @property
    def is_sound(self) -> bool:
        """Whether every value is of its type and may be true; in a file of another version it may not."""
        whole = [value for value in (self.pid, self.weight_bytes, self.cache_bytes) if type(value) is int]
        texts = isinstance(self.pair, str) and isinstance(self.url, str)
        numbers = len(whole) == 3 and 0 < self.pid < MOST_PID and all(0 <= value < MOST for value in whole)
        return texts and numbers and type(self.since) in (int, float) and 0 <= self.since < MOST

    @property
    def path(self) -> Path:
        """Its file."""
        return servers_folder() / f"{self.pid}.json"


def servers_folder() -> Path:
    """Where each has its file, and its log where it runs in the background."""
    return platformdirs.user_state_path("specdec") / "servers"


def new_log(port: int) -> Path:
    """Where the log of a server begins that runs in the background; of the oldest ones some give way.

    Raises: OSError where the server could not be seen: there would be no end of waiting for it.
    """
    folder = servers_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as file:
        file.write(bytes(FILE_BYTES))
    logs = [path for path in folder.glob("*.log") if path.is_file()]
    for path in sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True)[MOST_LOGS - 1 :]:
        for old in (path, path.with_suffix(OLDER)):
            old.unlink(missing_ok=True)
    return folder / f"{port or os.getpid()}.log"


def bound_log(file: TextIO) -> None:
    """Begin the log `file` anew once it is long; any other file, such as one of the user's own, stays as it is."""
    with suppress(OSError):
        about = os.fstat(file.fileno())
        if about.st_size <= LOG_BYTES:
            return
        for path in servers_folder().glob("*.log"):
            if os.path.samestat(about, path.stat()):
                shutil.copy(path, path.with_suffix(OLDER))
                file.flush()
                os.ftruncate(file.fileno(), 0)


@contextmanager
def announced(pair: str, url: str) -> Iterator[Holds]:
    """While open, other processes see this one as a server.

    Yields what tells them how many bytes its weights take, how many its caches may, and whether it loads.

    Where no file or lock can be had, nobody sees it.
    """
    server, descriptor = RunningServer(os.getpid(), pair, url, time.time()), -1

    def tell(weight_bytes: int, cache_bytes: int, loading: bool = False) -> None:
        said = replace(server, weight_bytes=weight_bytes, cache_bytes=cache_bytes, loading=loading)
        text = json.dumps(asdict(said)).encode()
        with suppress(OSError):
            os.pwrite(descriptor, text.ljust(FILE_BYTES), 0)  # of one length: nothing older stays behind it

    with suppress(OSError):
        server.path.parent.mkdir(parents=True, exist_ok=True)
        draft = server.path.with_suffix(".new")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tell(0, 0)
        draft.replace(server.path)
    try:
        yield tell
    finally:
        with suppress(OSError):
            server.path.unlink()


def running() -> list[RunningServer]:
    """Those that run, the oldest first; what others left is removed."""
    found = []
    for path in servers_folder().glob("*.json"):
        with suppress(OSError, NotJson, TypeError), open_file(path) as file:  # TypeError: of another version
            if _is_free(file.fileno()):
                path.unlink()
            elif (server := RunningServer(**parse_object(file.read()))).is_sound and server.path == path:
                found.append(server)
    return sorted(found, key=lambda server: server.since)


def others() -> tuple[RunningServer, ...]:
    """Those that run, but for this process, and have models in memory."""
    return tuple(server for server in running() if server.weight_bytes and server.pid != os.getpid())


def end(server: RunningServer, seconds: float) -> bool:
    """Tell it to end; whether it did within so many seconds."""
    deadline = time.monotonic() + seconds
    with suppress(FileNotFoundError, ProcessLookupError), open_file(server.path) as file:
        if not _is_free(file.fileno()):
            os.kill(server.pid, signal.SIGTERM)
        while not _is_free(file.fileno()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
    return True


def _is_free(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False
