"""The one error tree. Law: every failure a person can meet is here, says both values and names the next command.

SpecdecError            exit 1   failed
├── UsageError          exit 2   the command line or its input is wrong
├── NotAvailable        exit 3   model or pair is missing, corrupt or of an unsupported type
│   ├── Unanswered      exit 3   the Hub gave no answer: nothing is known of the model
│   └── PartlyHere      exit 3   files of a downloaded model are missing or altered: a pull mends it
├── Refused             exit 4   tokenizers, cache kind or repository code forbid this pair
└── DoesNotFit          exit 5   memory, disk or context is too small
"""

from __future__ import annotations


class SpecdecError(Exception):
    """What happened, with both values, in one line; `hint` is the next command to type."""

    exit_code = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpecdecError):
    """The request itself is wrong."""

    exit_code = 2


class NotAvailable(SpecdecError):
    """The model or pair cannot be had: missing, corrupt, of an unsupported type, or offline."""

    exit_code = 3


class Unanswered(NotAvailable):
    """The Hub could not be asked, so the model may well be there."""


class PartlyHere(NotAvailable):
    """The model is in the cache, but not all of it, or not as it was pulled."""


class Refused(SpecdecError):
    """Running this pair would give wrong words or run foreign code."""

    exit_code = 4


class DoesNotFit(SpecdecError):
    """Memory, disk or the context window is too small."""

    exit_code = 5
