"""stdin, stdout and stderr, whatever the caller left of them. Law: no file opened later takes the number of one."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

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
