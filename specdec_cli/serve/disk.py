"""Conversations that outlive the server, a file each in one folder. Losing it, or nonsense in it, harms nothing.

A file is believed only for the very models and versions that wrote it, and while its digest fits; else it is deleted
and the prompt read again. The folder belongs to one server at a time and stays within its bytes: those not used for
longest go first. Conversations are written only while nobody waits; who comes waits for one piece of a file at most.
Sizes in bytes, lengths in tokens, `used_at` in seconds of the epoch.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.engine.stored import Unusable, pack, read_facts, read_values, write
from specdec_cli.errors import SpecdecError, UsageError, untrusted
from specdec_cli.format import count, size
from specdec_cli.jsonfile import locked
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
ANOTHER = "give another folder: --cache-dir DIR"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation in a file. A rollback reaches every length from `floor` on, and the `places` below it."""

    name: str
    nbytes: int
    tokens: list[int]
    floor: int
    places: list[int]
    facts: Mapping[str, Any]

    def reach(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that need not be read again, as `Slot.reach` of what is in the file."""
        length = min(common_prefix(self.tokens, prompt), len(prompt) - 1)
        return length if length >= self.floor else max((at for at in self.places if at <= length), default=0)


class Folder:
    """`budget_bytes` None is decided at `index`, never less later. What went wrong is told to `tell`, in one line."""

    def __init__(self, path: Path, budget_bytes: int | None = None, tell: Tell = lambda line: None) -> None:
        self.path, self._tell = path, tell
        self._asked_bytes, self.budget_bytes = budget_bytes, budget_bytes or 0
        self._fingerprint = ""
        self._files: dict[str, tuple[int, float]] = {}
        self._entries: dict[str, Entry] = {}
        self._said = ""
        # When the next conversation may be written.
        self.next_at = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of all conversations, those of other models included."""
        return sum(nbytes for nbytes, _ in self._files.values())

    def index(self, fingerprint: str, cache_bytes: int) -> None:
        """Find what models of that `fingerprint` wrote, whose caches may take `cache_bytes` in memory.

        The first time it is told that others wrote, too; later these are models that were switched to.
        """
        first, self._fingerprint = not self._fingerprint, fingerprint
        if self._asked_bytes is None:
            self.budget_bytes = max(self.budget_bytes, USUAL_SHARE * cache_bytes)
        self._files, self._entries = {}, {}
        others = 0
        for path in sorted(self.path.iterdir() if fingerprint else ()):
            if NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                others += not self._add(path)
        if others and first:
            self._say(f"{self.path} has {count(others, 'conversation')} of other models or versions: kept for those")
        self._make_room(0, time.time())

    def nearest(self, prompt: Sequence[int], identity: str | None, reach: int, most_bytes: int) -> Entry | None:
        """The conversation that has the most of `prompt`, if that is worth reading its bytes, `most_bytes` at most.

        `reach` tokens of it need not be read anyway; between equals the one of the id `identity` wins.
        """
        ranked = []
        for file, entry in self._entries.items():
            here = entry.reach(prompt)
            gain = here - reach
            if gain >= LEAST_GAIN and entry.nbytes <= min(most_bytes, gain * BYTES_A_TOKEN):
                same = identity is not None and entry.facts.get("conversation_id") == identity
                ranked.append((here, same, self._files[file][1], file))
        return self._entries[max(ranked)[-1]] if ranked else None

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether all of them could be read back."""
        return any(entry.reach([*tokens, 0]) == len(tokens) for entry in self._entries.values())

    def restore(self, entry: Entry, slot: Slot, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Fill the empty `slot`, with `meanwhile` after each piece. A file that cannot be believed goes: then false."""
        path = self.path / (entry.name + SUFFIX)
        try:
            with untrusted(lambda reason: SpecdecError(reason, "")):
                slot.restore(_drained(read_values(path), meanwhile))
                if list(slot.tokens) != entry.tokens:
                    raise Unusable("it holds other tokens than it says")
        except SpecdecError as error:
            slot.forget()
            self._distrust(path, error.message, error.__cause__)
            return False
        self._touch(path, time.time())
        return True

    def write(self, name: str, slot: Slot, facts: Mapping[str, Any], used_at: float) -> Generator[None, None, None]:
        """Keep a conversation under `name`, a piece a step. Nothing may be read into `slot` meanwhile.

        Given up on the way it leaves nothing. Raises: Unusable for one that cannot be kept, OSError for a disk that is
        full or gone.
        """
        floor, places = slot.places
        said = {"fingerprint": self._fingerprint, "tokens": list(slot.tokens), "floor": floor, "places": list(places)}
        packed = pack({**said, "facts": dict(facts)}, slot.stored())
        path, beside = self.path / (name + SUFFIX), self.path / (name + SUFFIX + PART)
        if not self._make_room(packed.nbytes, used_at, path.name):
            self._say(
                f"a conversation of {size(packed.nbytes)} has no room in {self.path}, which may have "
                f"{size(self.budget_bytes)}: --cache-dir-bytes N gives it more"
            )
            return
        free = os.statvfs(self.path)
        if free.f_bavail * free.f_frsize < packed.nbytes + LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                yield from write(file, packed)
            beside.replace(path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        self._touch(path, used_at)
        self._add(path)

    def note_failure(self, reason: str) -> None:
        """A conversation was not written."""
        self._say(f"a conversation was not written to {self.path}: {reason}")

    def _add(self, path: Path) -> bool:
        """Whether the file at `path` is, or was, of these models."""
        if path.name.endswith(PART):
            self._remove(path)  # its writer was killed
            return True
        try:
            with untrusted(lambda reason: SpecdecError(reason, "")):
                status = path.stat()
                self._files[path.name] = status.st_size, status.st_mtime
                said = read_facts(path)
                if said["fingerprint"] != self._fingerprint:
                    return False
                name, facts = path.name.removesuffix(SUFFIX), dict(said["facts"])
                entry = Entry(name, status.st_size, said["tokens"], int(said["floor"]), said["places"], facts)
                self._entries[path.name] = entry
        except SpecdecError as error:
            self._distrust(path, error.message, error.__cause__)
        return True

    def _distrust(self, path: Path, reason: str, cause: BaseException | None) -> None:
        """Never look at it again; what is damaged goes."""
        self._entries.pop(path.name, None)
        damaged = not isinstance(cause, OSError)
        if damaged:
            self._remove(path)
        self._say(f"{path} is {'removed' if damaged else 'left alone'}: {reason}")

    def _remove(self, path: Path) -> None:
        self._entries.pop(path.name, None)
        self._files.pop(path.name, None)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def _make_room(self, needed: int, used_at: float, name: str = "") -> bool:
        """Whether `needed` bytes fit, once what was used before `used_at` went; the file `name` goes last."""
        while self.nbytes + needed > self.budget_bytes:
            older = [file for file, (_, at) in self._files.items() if at < used_at or file == name]
            if needed > self.budget_bytes or not older:
                return False
            self._remove(self.path / min(older, key=lambda file: (file == name, self._files[file][1])))
        return True

    def _touch(self, path: Path, used_at: float) -> None:
        """It was used then."""
        with contextlib.suppress(OSError):
            os.utime(path, (used_at, used_at))
        if path.name in self._files:
            self._files[path.name] = self._files[path.name][0], used_at

    def _say(self, line: str) -> None:
        """Once, however often it happens in a row."""
        if line != self._said:
            self._tell(line)
        self._said = line


def _drained(steps: Generator[None, None, Any], meanwhile: Callable[[], None]) -> Any:
    """What `steps` gives in the end, with `meanwhile` after each of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        meanwhile()


@contextmanager
def open_folder(path: Path, budget_bytes: int | None, tell: Tell) -> Iterator[Folder]:
    """The folder, made if need be so that its owner alone looks into it; nobody else uses it meanwhile.

    Raises: UsageError.
    """
    with ExitStack() as stack:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.stat().st_uid != os.getuid():
                raise UsageError(f"--cache-dir {path} belongs to another user", ANOTHER)
            stack.enter_context(locked(path, patience_seconds=0))
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                raise UsageError(f"--cache-dir {path} cannot be written", ANOTHER)
        except BlockingIOError as error:
            raise UsageError(f"--cache-dir {path} is in use by another specdec server", ANOTHER) from error
        except OSError as error:
            raise UsageError(f"--cache-dir {path} cannot be used: {error.strerror}", ANOTHER) from error
        yield Folder(path, budget_bytes, tell)
