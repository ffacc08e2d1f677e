"""This process's streams, whatever the caller left of them, and any failure in plain words."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

from specdec_cli.cli.command import ReaderLeft
from specdec_cli.errors import DoesNotFit, SpecdecError, reason
from specdec_cli.ui.spelling import SPELLED

# A closed stdout becomes one that refuses: what is written to it fails as it would have.
NULL_FLAGS = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}


class _Dropping(io.FileIO):
    """A file that drops what cannot be written: a log on a full disk must not cost the answer."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Replaces streams that were closed before the start (`>&-`), and lets no character fail that cannot be shown.

    What stderr cannot take is dropped, whatever the reason.
    """
    for number, (name, flags) in enumerate(NULL_FLAGS.items()):
        if getattr(sys, name) is None:
            opened = _reserved(number, flags)
            setattr(sys, name, os.fdopen(opened, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        dropping = io.BufferedWriter(_Dropping(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(dropping, encoding=sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELLED)


def _reserved(number: int, flags: int) -> int:
    """The null device under this number, or under another where somebody has taken it."""
    null = os.open(os.devnull, flags)
    try:
        os.fstat(number)
    except OSError:
        os.dup2(null, number)
        os.close(null)
        return number
    return null


def drop_unwritten() -> None:
    """What could not be written to stdout must not fail again when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def as_user_error(error: Exception) -> SpecdecError:
    """What a person is told of `error`. Raises: `error` itself where the reader of stdout has gone."""
    if isinstance(error, SpecdecError):
        return error
    if isinstance(error, BrokenPipeError | ReaderLeft):
        raise error
    failure = _of_the_device(error) or _of_the_system(error)
    if failure is None:
        hint = "SPECDEC_DEBUG=1 shows where; please report it with that"
        failure = SpecdecError(f"specdec failed unexpectedly: {reason(error)}", hint)
    failure.__cause__ = error
    return failure


def _of_the_device(error: Exception) -> SpecdecError | None:
    """The failure of the device that `error` reports, if one was in use."""
    if "mlx.core" not in sys.modules or not isinstance(error, RuntimeError | MemoryError):
        return None
    from specdec_cli.engine.failure import device_failure

    return device_failure(error)


def _of_the_system(error: Exception) -> SpecdecError | None:
    """A file or stream that cannot be read or written."""
    if not isinstance(error, OSError) or not error.strerror:
        return None
    what = f"{error.filename}: " if error.filename else ""
    if error.errno in DISK_FULL:
        return DoesNotFit(f"{what or 'the output cannot be written: '}{error.strerror}", "free some space first")
    if error.errno == errno.EBADF and not what:
        return SpecdecError(
            "stdout is closed, so the answer has nowhere to go", "leave out >&-; to drop the answer: > /dev/null"
        )
    return SpecdecError(f"{what or 'a file or stream failed: '}{error.strerror}", "check its place and its permissions")
