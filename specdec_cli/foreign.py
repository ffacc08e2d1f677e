"""Code that a model's own files drive: mlx-lm, a tokenizer, a chat template (pure).

Law: whatever it raises becomes one of our errors, in words without Python's names. The files are anyone's, so no list
of exceptions would be complete. Only this, the chat's loop and the command line catch them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specdec_cli.errors import SpecdecError

MOST_SHOWN = 160
# Libraries quote exceptions and classes of theirs in what they say.
CLASS = re.compile(r"<class '([\w.]+)'>")
NAME = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Warning)\b:?")


@contextmanager
def guarded(refused: Callable[[str], SpecdecError]) -> Iterator[None]:
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
        return "a check failed, and it did not say why"
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def _plain(text: str) -> str:
    return NAME.sub("", CLASS.sub(r"\1", text)).replace("NoneType", "null")
