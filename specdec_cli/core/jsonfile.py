"""JSON from outside, and a lock on the folder of a file of ours.

`json` lets three things through that a file from elsewhere may hold: nesting that ends in a RecursionError, a number of
thousands of digits, and bytes that are no UTF-8. Here each is a NotJson with one line.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdec_cli.core.readfile import read_file
from specdec_cli.core.textfile import decode_text

MOST_SHOWN = 60


class NotJson(ValueError):
    """The text is no JSON, or not of the expected kind; the message says why in one line."""


def parse(data: bytes | str) -> Any:
    """The value in `data`. Raises: NotJson."""
    try:
        return json.loads(decode_text(data) if isinstance(data, bytes) else data)
    except UnicodeDecodeError as error:
        raise NotJson(f"byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg}: line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise NotJson("it is nested too deeply") from error
    except (ValueError, MemoryError) as error:  # a number of thousands of digits
        raise NotJson("a number in it is too long") from error


def parse_object(data: bytes | str) -> dict[str, Any]:
    """The object in `data`. Raises: NotJson, also for a value of another kind."""
    values = parse(data)
    if not isinstance(values, dict):
        raise NotJson(f"it holds {kind_of(values)}, but an object is expected")
    return values


def read_object(path: Path) -> dict[str, Any]:
    """The object in the file. Raises: NotJson, OSError."""
    return parse_object(read_file(path))


def read_or_empty(path: Path) -> dict[str, Any]:
    """The object in a file of our own that may be missing or damaged without harm; then it is empty."""
    try:
        return read_object(path)
    except (OSError, NotJson):
        return {}


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all; the mode of a file that holds anything stays. Raises: OSError."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists() and path.stat().st_size:
            shutil.copymode(path, draft)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)


def whole(values: Mapping[str, Any], key: str, usual: int) -> int:
    """The whole number under `key`, at least 0; `usual` where there is none. Raises: NotJson."""
    value = values.get(key)
    if value is None:
        return usual
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NotJson(f"{key} is {shown(value)}, but a whole number is expected")
    return value


def kind_of(value: object) -> str:
    """The kind of a JSON value, for people."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else kinds.get(type(value), "a number")


def shown(value: object) -> str:
    """A foreign value as one short line for a message."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return kind_of(value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


PATIENCE_SECONDS = 10.0
STEP_SECONDS = 0.02


@contextmanager
def locked(
    folder: Path, patience_seconds: float = PATIENCE_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """Makes the folder and holds its lock. Raises: BlockingIOError after `patience_seconds`, OSError.

    A file system without locks is used without one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, waited = os.open(folder, os.O_RDONLY), 0.0
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited >= patience_seconds:
                    raise
            except OSError:
                break
            sleep(STEP_SECONDS)
            waited += STEP_SECONDS
        yield
    finally:
        os.close(descriptor)
