"""Where a training works, and what it leaves. A killed one leaves its folder, in which the same training goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, UsageError
from specdec_cli.models.turns import Message
from specdec_cli.pairs.tuned import tuned_folder, write_record
from specdec_cli.session.kept_chats import kept_chats
from specdec_cli.session.transcript import load

WORKING, KEY_DIGITS, STATE, SPENT, TRAINED = ".training-", 16, "state.safetensors", "spent", "trained"
# A training that was killed longer ago is not waited for.
FORGOTTEN_SECONDS = 7 * 24 * 3600.0


class Kept:
    """What a training keeps in its `folder`, so that a killed one goes on, and the seconds that were `spent` on it.

    The first process began when `clock` said `began`. What a kill destroyed does not count.
    """

    def __init__(self, folder: Path, began: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.clock, now = folder, clock, clock()
        self.going_on = any(folder.iterdir())
        self._zero = now - self.get(SPENT).get(SPENT, 0.0 if began is None else now - began)

    @property
    def spent(self) -> float:
        return float(self.clock() - self._zero)

    def get(self, name: str) -> dict[str, Any]:
        """What is kept by `name`; empty where nothing is."""
        return jsonfile.read_or_empty(self.folder / f"{name}.json")

    def put(self, name: str, values: Mapping[str, Any]) -> None:
        """Raises: OSError."""
        jsonfile.replace_text(self.folder / f"{name}.json", json.dumps(values))

    def mark(self) -> None:
        """What was done until now is kept. Raises: OSError."""
        self.put(SPENT, {SPENT: self.spent})

    def made(self, name: str, make: Callable[[], Any]) -> dict[str, Any]:
        """The fields of what is kept by `name`, or is made now, and kept. Raises: OSError."""
        if not self.get(name):
            self.put(name, asdict(make()))
            self.mark()
        return self.get(name)

    def decided(self, name: str, decide: Callable[[], float]) -> float:
        """A number that the first process to need it decides, and every later one keeps. Raises: OSError."""
        if not self.get(name):
            self.put(name, {name: decide()})
        return float(self.get(name)[name])


@contextmanager
def workplace(identity: Mapping[str, Any], began: float | None = None) -> Iterator[Kept]:
    """A folder, of mode 0700, of the training that `identity` describes, deleted at the end.

    Where a signal ends the training the folder stays, as where it is killed.

    Raises: UsageError where another process is at it, OSError.
    """
    tuned_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in tuned_folder().glob(f"{WORKING}*"):
        if time.time() - old.stat().st_mtime > FORGOTTEN_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:KEY_DIGITS]
    folder = tuned_folder() / f"{WORKING}{key}"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        with jsonfile.locked(folder, patience_seconds=0.0):
            try:
                yield Kept(folder, began)
            except (OSError, SpecdecError):  # a full disk needs the room, and a refusal would come again
                clear(folder)
                raise
            clear(folder)
    except BlockingIOError as error:
        raise UsageError("the same training is under way in another process", "wait for it, or end it") from error


def clear(folder: Path) -> None:
    """Deletes a training, its end and state first: of what a kill leaves here nothing is gone on with."""
    with suppress(OSError):
        for name in (f"{TRAINED}.json", STATE):
            (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path, name: str, record: Mapping[str, Any]) -> Path:
    """Gives what is in `folder` its place, that of an older one of the `name`, with a `record`. Raises: OSError."""
    (folder.parent / f"{TRAINED}.json").unlink(missing_ok=True)  # a kill may come before the rest is deleted
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
