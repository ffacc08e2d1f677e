"""Any failure as one of ours. Law: two lines in plain words, the exit code of its kind, and no name of Python's."""

from __future__ import annotations

import errno
import sys

from specdec_cli.cli.pipes import ReaderLeft
from specdec_cli.errors import DoesNotFit, SpecdecError, reason

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def explained(error: Exception) -> SpecdecError:
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
