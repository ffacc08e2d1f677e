"""This process's streams, whatever the caller left of them, and any failure in plain words."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from specdec_cli.core.errors import SpecdecError, not_written, reason
from specdec_cli.system.link import DESCRIPTOR


def prepare_streams() -> None:
    """Streams that were closed before the start (`>&-`) become the null device, which takes the descriptor's place.

    A character that an encoding lacks becomes `?`.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if DESCRIPTOR in os.environ:  # where a rank is lost, mlx writes a dozen lines of its own
        sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, buffering=1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for name in ("write", "flush"):
        setattr(sys.stderr, name, _never_failing(getattr(sys.stderr, name)))


def _never_failing(act: Callable[..., Any]) -> Callable[..., Any]:
    """`act` of stderr, which is lost where it fails: a full disk or a closed pipe there must not cost the answer."""

    def lossy(*arguments: Any) -> Any:
        try:
            return act(*arguments)
        except OSError:
            drop_unwritten(sys.stderr)
            return 0

    return lossy


def drop_unwritten(stream: TextIO | None = None) -> None:
    """What could not be written to `stream` (None: stdout) must not fail again, not even when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def as_user_error(error: Exception) -> SpecdecError:
    """What a person is told of `error`. Raises: `error` itself where the reader of stdout has gone."""
    if isinstance(error, SpecdecError):
        return error
    if isinstance(error, BrokenPipeError):
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
    message = f"{error.filename or 'a file or stream failed'}: {error.strerror}"
    return not_written(error, message, "check its location and its permissions", "free some space first")
