"""Where a training works, and what it leaves. A killed one leaves its folder, in which the same training goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from specdec_cli.chat.kept import kept_chats
from specdec_cli.chat.transcript import load
from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError
from specdec_cli.models.turns import Message
from specdec_cli.pairs.tuned import tuned_folder, write_record

PREFIX, KEY_DIGITS, STATE = ".training-", 16, "state.safetensors"
# A training that was killed longer ago is not waited for.
FORGOTTEN_SECONDS = 7 * 24 * 3600.0


@contextmanager
def workplace(identity: Mapping[str, Any]) -> Iterator[Path]:
    """The folder, of mode 0700, of the training that `identity` describes, deleted at the end.

    Where a signal or a failure ends the training the folder stays, as where it is killed.

    Raises: UsageError where another process is at it, OSError.
    """
    tuned_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in tuned_folder().glob(f"{PREFIX}*"):
        if time.time() - old.stat().st_mtime > FORGOTTEN_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]
    folder = tuned_folder() / f"{PREFIX}{key}"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        with jsonfile.locked(folder, patience_seconds=0.0):
            try:
                yield folder
            except OSError:  # a full disk needs the room
                clear(folder)
                raise
            clear(folder)
    except BlockingIOError as error:
        raise UsageError("the same training is under way in another process", "wait for it, or end it") from error


def clear(folder: Path) -> None:
    """Deletes a training, its state first: of what a kill leaves here nothing is gone on with."""
    with suppress(OSError):
        (folder / STATE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path, name: str, record: Mapping[str, Any]) -> Path:
    """Gives what is in `folder` its place, that of an older one of the `name`, with a `record`. Raises: OSError."""
    write_record(folder, dict(record))
    kept = tuned_folder() / name
    shutil.rmtree(kept, ignore_errors=True)
    return folder.rename(kept)


def chat_messages(tell: Callable[[str], None]) -> dict[str, list[Message]]:
    """The messages of every kept chat, by the name of its file; `tell` hears of each that is damaged."""
    found: dict[str, list[Message]] = {}
    for path in kept_chats():
        try:
            chat = load(path).conversation
        except UsageError as error:
            tell(error.message)
            continue
        if chat.turns:
            found[path.name] = [*chat.messages(chat.turns[-1].user)[:-1]]
    return found
