"""How every file is opened for reading: what is at a path may be a pipe, on which one waits for ever, or a device."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, BytesIO
from pathlib import Path

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def expanded(path: str) -> Path:
    """Where a path that a person wrote leads, `~` being a home; as it is written where there is no such person."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - unlike Path's, it never raises


def is_folder(path: Path) -> bool:
    """Whether it is one; a name that no folder can have, being too long, is none."""
    return os.path.isdir(path)  # noqa: PTH112 - unlike Path's, it never raises


def odd_kind(mode: int) -> str:
    """The kind of what is neither a file nor a folder; empty for these."""
    return KINDS.get(stat.S_IFMT(mode), "")


def open_file(path: str | Path, *, piped: bool = False) -> BufferedReader | BytesIO:
    """The file, from its beginning; the null device is an empty one. Nobody is waited for.

    `piped`: so is a pipe that somebody writes to, such as a shell's `<(command)`, until its end.
    Raises: OSError, also for any other pipe, a socket, a device, and a path that no file can have.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError as error:  # a NUL, or half a character
        raise OSError(errno.EINVAL, "no file can have that name", str(path)) from error
    try:
        mode, device = (status := os.fstat(descriptor)).st_mode, status.st_rdev
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if piped and stat.S_ISFIFO(mode) and (begun := _beginning(descriptor)) is not None:
            os.set_blocking(descriptor, True)
            with os.fdopen(os.dup(descriptor), "rb") as rest:
                return BytesIO(begun + rest.read())
        if (kind := odd_kind(mode)) and device != Path(os.devnull).stat().st_rdev:
            raise OSError(errno.EINVAL, f"it is {kind}, but a file is expected", str(path))
        return os.fdopen(os.dup(descriptor), "rb")
    finally:
        os.close(descriptor)


def _beginning(descriptor: int) -> bytes | None:
    """What a pipe holds by now; None where nobody writes to it."""
    try:
        return os.read(descriptor, 1 << 16) or None
    except BlockingIOError:
        return b""


def read_file(path: str | Path, *, piped: bool = False) -> bytes:
    """All that is in the file, as by `open_file`. Raises: OSError."""
    with open_file(path, piped=piped) as file:
        return file.read()
