"""The one error tree, and the boundary to code and files of others. Every error says both values and the next command.

SpecdecError            exit 1   failed
├── UsageError          exit 2   the command line or its input is wrong
├── NotAvailable        exit 3   model or pair is missing, corrupt or of an unsupported type
│   ├── NoPair          exit 3   no pair was named, and the demo pair answers no questions
│   └── PartlyHere      exit 3   files of a downloaded model are missing or altered: a pull mends it
├── Refused             exit 4   tokenizers, cache kind or repository code forbid this pair
└── DoesNotFit          exit 5   memory, disk or context is too small
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class SpecdecError(Exception):
    """`message` says what happened, with both values, in one line; `hint` is the next command.

    `told`: a stream of events has ended with it.
    """

    exit_code = 1
    told = False

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpecdecError):
    """The request itself is wrong."""

    exit_code = 2


class NotAvailable(SpecdecError):
    """The model or pair is not available: missing, corrupt, of an unsupported type, or offline."""

    exit_code = 3


class NoPair(NotAvailable):
    """No pair was named, and the demo pair answers no questions.

    `offer` asks whether to begin with another, and `command` does so; empty where none is known to fit this machine.
    """

    def __init__(self, hint: str, offer: str = "", command: tuple[str, ...] = ()) -> None:
        super().__init__("no models were chosen yet, and the demo pair only continues Python", hint)
        self.offer = offer
        self.command = command


class PartlyHere(NotAvailable):
    """The model is in the cache, but not all of it, or not as it was pulled."""


class Refused(SpecdecError):
    """This pair would give wrong text or run foreign code."""

    exit_code = 4


class DoesNotFit(SpecdecError):
    """Memory, disk or the context window is too small."""

    exit_code = 5


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def not_written(error: OSError, message: str, hint: str, when_full: str | None = None) -> SpecdecError:
    """What a person is told of a file that `error` kept from being written; the hint may be another for a full disk."""
    return DoesNotFit(message, when_full or hint) if error.errno in DISK_FULL else SpecdecError(message, hint)


MOST_SHOWN = 160
# Libraries quote exceptions and classes of theirs in what they say.
CLASS = re.compile(r"<class '([\w.]+)'>")
NAME = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning)\b:?")


@contextmanager
def untrusted(refused: Callable[[str], SpecdecError]) -> Iterator[None]:
    """In this context any exception becomes `refused(reason)`; SpecdecErrors pass unchanged."""
    try:
        yield
    except SpecdecError:
        raise
    except Exception as error:  # code and files of others: what they raise cannot be listed
        raise refused(reason(error)) from error


def reason(error: BaseException) -> str:
    """What happened, in one short line without the exception's name."""
    match error:
        case RecursionError():
            return "something in it is nested too deeply"
        case MemoryError():
            return "something in it is too large for this machine's memory"
        case KeyError():
            return f"{error.args[0]!r} is missing" if error.args else "a value is missing"
        case OSError() if error.strerror:
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = " ".join(_plain(str(error)).split())
    if not text:
        return f"{_kind(error)}{_place(error)}, without an explanation"
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def _kind(error: BaseException) -> str:
    """`StopIteration` as `stop iteration`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()


def _place(error: BaseException) -> str:
    """The line of code that raised `error`, where it was raised at all."""
    trace = traceback.extract_tb(error.__traceback__)
    return f" at {Path(trace[-1].filename).name}:{trace[-1].lineno}" if trace else ""


def _plain(text: str) -> str:
    return NAME.sub("", CLASS.sub(r"\1", text)).replace("NoneType", "null")
