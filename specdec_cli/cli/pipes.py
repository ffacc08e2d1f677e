"""A closed pipe ends a command quietly. Law: the reader may leave at any time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


class ReaderLeft(Exception):
    """A closed pipe, under a name that Typer does not turn into exit code 1."""


def ignore_broken_pipe(command: Callable[P, None]) -> Callable[P, None]:
    """The command, ending as ReaderLeft when whoever reads its output goes away."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError as error:
            raise ReaderLeft from error

    return wrapped
