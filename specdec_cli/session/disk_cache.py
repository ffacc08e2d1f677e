"""Conversations that were read, kept on disk from one process to the next. Law: an entry costs time, never a word.

One is found by comparing the ids themselves. What is damaged is removed, and read anew.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, untrusted
from specdec_cli.core.format import size
from specdec_cli.engine import device
from specdec_cli.engine.cache.cache_kinds import as_bytes, parts_of, read_contents
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.pairs.limits import limit_bytes
from specdec_cli.session.disk_entries import UNFINISHED, Entry, entries, entry_files, lost, remove, require_whole
from specdec_cli.session.slot import Slot

# Fewer tokens are read again sooner than they are found.
LEAST_TOKENS = 256
# Of an entry of which less than this share is of use, all would be read from disk.
LEAST_SHARE = 0.125
# So long a writer waits for another process that writes.
WRITER_SECONDS = 30.0
# Bytes that are written at once, and how many times as long as that took nothing is: answers that are decoded meanwhile
# lose at most a fortieth of one core.
SLICE_BYTES, RESTS = 1 << 20, 40


class DiskCache:
    """At most `most_bytes` of conversations in `folder`, which processes share; the least recently used go first.

    `tell` hears once why nothing more is written, and once of a conversation that is too large.
    """

    def __init__(self, folder: Path, most_bytes: int, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self.folder, self.most_bytes, self._tell = folder, most_bytes, tell
        self._known: dict[Path, Entry] = {}
        self._writer = ThreadPoolExecutor(1, "disk cache")
        self._writing: Future[str] | None = None
        # Somebody waits for what is written.
        self._hurry = Event()
        self._failed = self._told_size = False
        if folder.is_dir():
            with suppress(OSError), jsonfile.locked(folder, 0.0):
                self._remove_unfinished()

    @property
    def is_used(self) -> bool:
        """Whether there is any entry."""
        return bool(entry_files(self.folder))

    def restore(self, fingerprint: str, slot: Slot, prompt: Sequence[int]) -> int:
        """Have `slot` hold the entry that spares it most of `prompt`; the tokens that came from disk, 0 for none."""
        held = slot.reach(prompt)
        for reach, path, entry in self._by_reach(fingerprint, prompt):
            if reach - held < LEAST_TOKENS:
                return 0
            if reach < LEAST_SHARE * len(entry.ids):
                continue
            try:
                with untrusted(lost):
                    require_whole(path)
                    slot.restore(read_contents(entry.outline, path))
                with suppress(OSError):  # another process removed it, or nothing there can be written
                    os.utime(path)
                return slot.reach(prompt)
            except SpecdecError:
                slot.forget()
                remove(path)
        return 0

    def write(self, fingerprint: str, slot: Slot, owner: str = "", waits: bool = False) -> bool:
        """Begin to write what `slot` holds; whether it was begun. One is written at a time: another `waits`, or is not.

        Nor is one whose bytes have no room in memory beside all else. `owner` is the chat that it belongs to, if any.
        """
        if self._writing and not (waits or self._writing.done()):
            return False
        self.finish()
        left_bytes = limit_bytes(device.usable_bytes()) - device.active_memory_bytes()
        if self._failed or slot.nbytes > left_bytes or not self._fits(slot.nbytes):
            return False
        try:
            with untrusted(lost):
                outline, arrays = parts_of(slot.contents())
                entry = Entry(fingerprint, owner, slot.target.ends, outline)
                data = as_bytes(arrays, entry.metadata())  # in the thread of their streams: the writer computes nothing
        except SpecdecError as error:
            self._fail(error.message)
            return False
        if not self._fits(len(data)):  # what arrays of the slot share is written for each
            return False
        self._hurry.clear()
        self._writing = self._writer.submit(self._write, entry, data)
        return True

    def finish(self) -> None:
        """Wait until everything is written."""
        writing, self._writing = self._writing, None
        self._hurry.set()
        if writing is not None and (problem := writing.result()):
            self._fail(problem)

    def _fits(self, nbytes: int) -> bool:
        """Whether a conversation of so many bytes may be kept; of the first that may not the caller hears."""
        fits = nbytes <= self.most_bytes
        if not (fits or self._told_size):
            self._told_size, most = True, size(self.most_bytes)
            self._tell(f"a conversation of {size(nbytes)} is not kept on disk, where all together may take {most}")
        return fits

    def _fail(self, problem: str) -> None:
        """Nothing more is written, which is said once, in the thread of the caller."""
        if not self._failed:
            self._failed = True
            self._tell(problem)

    def _write(self, entry: Entry, data: bytearray) -> str:
        """In the writer's thread: all of it, or nothing; why nothing more is to be written, else empty."""
        try:
            # Another process is still writing, or removed them all: this one is left out.
            with untrusted(lost), suppress(BlockingIOError, FileNotFoundError):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with jsonfile.locked(self.folder, WRITER_SECONDS):
                    try:
                        held = entries(self.folder, entry.fingerprint).items()
                        inside = {path for path, older in held if older.is_in(entry)}
                        self._make_room(len(data), inside)
                        written = self._write_slowly(entry, memoryview(data))
                        for path in inside - {written}:  # not before: who is killed in between keeps them
                            remove(path)
                    finally:
                        self._remove_unfinished()
            return ""
        except SpecdecError as error:
            return error.message

    def _write_slowly(self, entry: Entry, data: memoryview) -> Path:
        draft, digest = self.folder / UNFINISHED, hashlib.sha256()
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            for part in slowly(data, self._hurry.wait):
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return draft.replace(self.folder / entry.name(digest.hexdigest()))

    def _make_room(self, nbytes: int, inside: Collection[Path]) -> None:
        """Remove entries until `nbytes` more are within limits.

        First those `inside` the new one go, then the least recently used.
        """
        kept = list[tuple[bool, int, int, Path]]()
        for path in entry_files(self.folder):
            with suppress(OSError):  # another process removed it
                kept.append((path not in inside, (status := path.stat()).st_mtime_ns, status.st_size, path))
        over = sum(its_bytes for *_, its_bytes, _ in kept) + nbytes - self.most_bytes
        for *_, its_bytes, path in sorted(kept):
            if over > 0:
                over -= its_bytes
                remove(path)

    def _remove_unfinished(self) -> None:
        """What killed writers left; only under the lock, which every writer holds."""
        for path in self.folder.glob(".*"):
            remove(path)

    def _by_reach(self, fingerprint: str, prompt: Sequence[int]) -> list[tuple[int, Path, Entry]]:
        """(tokens of `prompt` that an entry spares, its file, the entry), the best first, the smallest of equal ones.

        The last token of a prompt always is read.
        """
        self._known = entries(self.folder, fingerprint, self._known)
        found = [
            (entry.reach(min(common_prefix(entry.ids, prompt), len(prompt) - 1)), path, entry)
            for path, entry in self._known.items()
            if entry.fingerprint == fingerprint
        ]
        return sorted(found, key=lambda one: (-one[0], len(one[2].ids)))


def slowly(
    data: memoryview, rest: Callable[[float], object], clock: Callable[[], float] = time.perf_counter
) -> Iterator[memoryview]:
    """Slices of `data`, with a `rest` of so many seconds after each, RESTS times as long as the caller had it."""
    for at in range(0, len(data), SLICE_BYTES):
        began = clock()
        yield data[at : at + SLICE_BYTES]
        rest(RESTS * (clock() - began))
