"""Conversations that outlive the server, a file each in one folder. Losing it, or nonsense in it, harms nothing.

A file is believed only for the very models and versions that wrote it, and while its digest fits; else it is deleted
and the prompt read again. The folder belongs to one server at a time and stays within its bytes: those not used for
longest go first. Sizes in bytes, lengths in tokens, `used_at` in seconds of the epoch.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec_cli.core.errors import SpecdecError, UsageError, untrusted
from specdec_cli.core.format import count, size
from specdec_cli.core.jsonfile import locked
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.stored import Unusable, pack, read_facts, read_values, write
from specdec_cli.session.slot import Slot

SUFFIX, PART = ".conversation", ".part"
NAME = re.compile(rf"[0-9a-f]{{16}}{SUFFIX}({PART})?")
# Where nothing else was asked for, so many times what the caches may take in memory.
USUAL_SHARE = 4
# Bytes that are read from a disk in about the time in which a large model reads a token.
BYTES_A_TOKEN = 4 << 20
# A disk with less room than that is full.
LEAST_FREE_BYTES = 256 << 20
# Fewer tokens are sooner read anew.
LEAST_GAIN = 16


@dataclass(slots=True)
class Entry:
    """A conversation in a file; of other models' nothing but its size is known.

    A rollback reaches every length from `floor` on, and the `places` below it.
    """

    path: Path
    nbytes: int
    used_at: float
    tokens: list[int] = field(default_factory=list)
    floor: int = 0
    places: list[int] = field(default_factory=list)
    conversation_id: str | None = None

    def reach(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that need not be read again, as `Slot.reach` of what is in the file."""
        length = min(common_prefix(self.tokens, prompt), len(prompt) - 1)
        return length if length >= self.floor else max((at for at in self.places if at <= length), default=0)


class Folder:
    """`budget_bytes` None is decided at `index`, never less later. What went wrong is told to `tell`, in one line."""

    def __init__(self, path: Path, budget_bytes: int | None = None, tell: Callable[[str], None] = print) -> None:
        self.path, self._tell = path, tell
        self._asked_bytes, self.budget_bytes = budget_bytes, budget_bytes or 0
        self._fingerprint, self._said = "", ""
        self._entries: dict[str, Entry] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all conversations, those of other models included."""
        return sum(entry.nbytes for entry in self._entries.values())

    def index(self, fingerprint: str, cache_bytes: int) -> None:
        """Find what models of that `fingerprint` wrote, whose caches may take `cache_bytes` in memory.

        The first time it is told that others wrote, too; later these are models that were switched to.
        """
        first, self._fingerprint = not self._fingerprint, fingerprint
        if self._asked_bytes is None:
            self.budget_bytes = max(self.budget_bytes, USUAL_SHARE * cache_bytes)
        self._entries = {}
        for path in sorted(self.path.iterdir()):
            if NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                with self._believing(path):
                    self._add(path)
        others = sum(not entry.tokens for entry in self._entries.values())
        if others and first:
            self._say(f"{self.path} has {count(others, 'conversation')} of other models or versions: kept for those")
        self._make_room(0, float("inf"))

    def nearest(self, prompt: Sequence[int], identity: str | None, reach: int, most_bytes: int) -> Entry | None:
        """The conversation that has the most of `prompt`, if that is worth reading its bytes, `most_bytes` at most.

        `reach` tokens of it need not be read anyway; between equals the one of the id `identity` wins.
        """

        def rank(entry: Entry) -> tuple[int, bool, float]:
            same = identity is not None and entry.conversation_id == identity
            return entry.reach(prompt), same, entry.used_at

        best = max(self._entries.values(), key=rank, default=None)
        gain = best.reach(prompt) - reach if best else 0
        worth = best and gain >= LEAST_GAIN and best.nbytes <= min(most_bytes, gain * BYTES_A_TOKEN)
        return best if worth else None

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether all of them could be read back."""
        return any(entry.reach([*tokens, 0]) == len(tokens) for entry in self._entries.values())

    def restore(self, entry: Entry, slot: Slot) -> bool:
        """Fill the empty `slot`. A file that cannot be believed goes: then false."""
        with self._believing(entry.path):
            slot.restore(_result(read_values(entry.path)))
            if list(slot.tokens) != entry.tokens:
                raise Unusable("it holds other tokens than it says")
            entry.used_at = time.time()
            os.utime(entry.path, (entry.used_at, entry.used_at))
            return True
        slot.forget()
        return False

    def write(self, slot: Slot, conversation_id: str | None, used_at: float) -> None:
        """Keep a conversation; files of its beginnings go. Raises: Unusable if it cannot be kept, OSError if full."""
        floor, places = slot.places
        said: dict[str, Any] = {"tokens": list(slot.tokens), "floor": floor, "places": list(places)}
        said["conversation_id"] = conversation_id
        packed = pack({"fingerprint": self._fingerprint, **said}, slot.stored())
        path = self.path / (secrets.token_hex(8) + SUFFIX)
        beside = path.with_name(path.name + PART)
        for entry in tuple(self._entries.values()):
            if entry.tokens and entry.tokens == said["tokens"][: len(entry.tokens)]:
                self._remove(entry.path)
        if not self._make_room(packed.nbytes, used_at):
            self._say(
                f"a conversation of {size(packed.nbytes)} has no room in {self.path}, which may have "
                f"{size(self.budget_bytes)}: --cache-dir-bytes N gives it more"
            )
            return
        if shutil.disk_usage(self.path).free < packed.nbytes + LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                for _ in write(file, packed):
                    pass
            os.utime(beside, (used_at, used_at))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        self._entries[path.name] = Entry(path, packed.nbytes, used_at, **said)

    def note_failure(self, reason: str) -> None:
        """A conversation was not written."""
        self._say(f"a conversation was not written to {self.path}: {reason}")

    def _add(self, path: Path) -> None:
        if path.name.endswith(PART):
            return path.unlink()  # its writer was killed
        status = path.stat()
        entry = self._entries[path.name] = Entry(path, status.st_size, status.st_mtime)
        said = read_facts(path)
        if said["fingerprint"] == self._fingerprint:
            entry.tokens, entry.floor = said["tokens"], int(said["floor"])
            entry.places, entry.conversation_id = said["places"], said["conversation_id"]
        return None

    @contextmanager
    def _believing(self, path: Path) -> Iterator[None]:
        """Whatever is wrong with the file, it goes, and nothing is raised."""
        try:
            with untrusted(lambda reason: SpecdecError(reason, "")):
                yield
        except SpecdecError as error:
            self._remove(path)
            self._say(f"{path} is removed: {error.message}")

    def _remove(self, path: Path) -> None:
        self._entries.pop(path.name, None)
        with suppress(OSError):
            path.unlink(missing_ok=True)

    def _make_room(self, needed: int, used_at: float) -> bool:
        """Whether `needed` bytes fit, once what was used before `used_at` went, as far as that is necessary."""
        while self.nbytes + needed > self.budget_bytes:
            oldest = min(self._entries.values(), key=lambda entry: entry.used_at, default=None)
            if oldest is None or needed > self.budget_bytes or oldest.used_at >= used_at:
                return False
            self._remove(oldest.path)
        return True

    def _say(self, line: str) -> None:
        """Once, however often it happens in a row."""
        if line != self._said:
            self._tell(line)
        self._said = line


def _result(steps: Generator[None, None, Any]) -> Any:
    """What `steps` gives in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@contextmanager
def open_folder(path: Path, budget_bytes: int | None, tell: Callable[[str], None]) -> Iterator[Folder]:
    """The folder, made if need be so that its owner alone looks into it; nobody else uses it meanwhile.

    Raises: UsageError.
    """
    with ExitStack() as stack:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(locked(path, patience_seconds=0))
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            said = "is in use by another specdec server" if busy else f"cannot be used: {error.strerror}"
            raise UsageError(f"--cache-dir {path} {said}", "give another folder: --cache-dir DIR") from error
        yield Folder(path, budget_bytes, tell)
