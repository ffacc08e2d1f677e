"""The one error tree. Law: every error says both values and the next command.

SpecdecError            exit 1   failed
├── UsageError          exit 2   the command line or its input is wrong
├── NotAvailable        exit 3   model or pair is missing, corrupt or of an unsupported type
│   ├── Unanswered      exit 3   the Hub gave no answer: the model may exist
│   └── PartlyHere      exit 3   files of a downloaded model are missing or altered: a pull mends it
├── Refused             exit 4   tokenizers, cache kind or repository code forbid this pair
└── DoesNotFit          exit 5   memory, disk or context is too small
"""

from __future__ import annotations


class SpecdecError(Exception):
    """`message` says what happened, with both values, in one line; `hint` is the next command."""

    exit_code = 1

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


class Unanswered(NotAvailable):
    """The Hub did not answer, so the model may exist."""


class PartlyHere(NotAvailable):
    """The model is in the cache, but not all of it, or not as it was pulled."""


class Refused(SpecdecError):
    """This pair would give wrong text or run foreign code."""

    exit_code = 4


class DoesNotFit(SpecdecError):
    """Memory, disk or the context window is too small."""

    exit_code = 5
