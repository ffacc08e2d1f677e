"""Conversations that were read, kept on disk from one process to the next. Law: an entry costs time, never a word.

One is found by comparing the ids themselves. What is damaged is removed, and read anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, untrusted
from specdec_cli.engine.cache.cache_kinds import as_bytes, read_contents
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.session.disk_entries import ARRAYS, FACTS, Entry, damaged, digest, entries, facts_files, remove
from specdec_cli.session.slot import Slot
from specdec_cli.system.machine import yield_to_others

# Fewer tokens are read again sooner than they are found.
LEAST_TOKENS = 256
# Of an entry of which less than this share is of use, all would be read from disk.
LEAST_SHARE = 0.125
# So long a writer waits for another process that writes.
WRITER_SECONDS = 30.0


class DiskCache:
    """At most `most_bytes` of conversations in `folder`, which processes share; the least recently used go first.

    `tell` hears once why nothing more is written.
    """

    def __init__(self, folder: Path, most_bytes: int, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self.folder, self.most_bytes, self._tell = folder, most_bytes, tell
        self._known: dict[Path, Entry] = {}
        self._writer = ThreadPoolExecutor(1, "disk cache", yield_to_others)
        self._writing: Future[str] | None = None
        self._failed = False
        if folder.is_dir():
            with suppress(OSError), jsonfile.locked(folder, 0.0):
                self._remove_unfinished()

    @property
    def is_used(self) -> bool:
        """Whether there is any entry."""
        return bool(facts_files(self.folder))

    def restore(self, fingerprint: str, slot: Slot, prompt: Sequence[int]) -> int:
        """Have `slot` hold the entry that spares it most of `prompt`; the tokens that came from disk, 0 for none."""
        held = slot.reach(prompt)
        for reach, entry in self._by_reach(fingerprint, prompt):
            if reach - held < LEAST_TOKENS:
                return 0
            if reach < LEAST_SHARE * len(entry.ids):
                continue
            try:
                with untrusted(damaged):
                    entry.require_arrays()
                    slot.restore(read_contents(entry.outline, entry.arrays))
                    os.utime(entry.path)
                return slot.reach(prompt)
            except SpecdecError:
                slot.forget()
                remove(entry.path)
        return 0

    def write(self, fingerprint: str, slot: Slot, owner: str = "", waits: bool = False) -> bool:
        """Begin to write what `slot` holds; whether it was begun. One is written at a time: another `waits`, or is not.

        `owner` is the chat that it belongs to, if any.
        """
        if self._writing and not (waits or self._writing.done()):
            return False
        self.finish()
        if self._failed or slot.nbytes > self.most_bytes:
            return False
        try:
            with untrusted(_unwritten):
                outline, data = as_bytes(slot.contents())  # in the thread of its streams: the writer computes nothing
        except SpecdecError as error:
            self._fail(error.message)
            return False
        facts = {"fingerprint": fingerprint, "owner": owner, "ends": slot.target.ends, "outline": outline}
        self._writing = self._writer.submit(self._write, facts, data)
        return True

    def finish(self) -> None:
        """Wait until everything is written."""
        writing, self._writing = self._writing, None
        if writing is not None and (problem := writing.result()):
            self._fail(problem)

    def _fail(self, problem: str) -> None:
        """Nothing more is written, which is said once, in the thread of the caller."""
        if not self._failed:
            self._failed = True
            self._tell(problem)

    def _write(self, facts: dict[str, Any], data: io.BytesIO) -> str:
        """In the writer's thread: all of it, or nothing; why not, else empty."""
        try:
            with untrusted(_unwritten):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with jsonfile.locked(self.folder, WRITER_SECONDS):
                    try:
                        self._write_locked(facts, data)
                    finally:
                        self._remove_unfinished()
            return ""
        except SpecdecError as error:
            return error.message

    def _write_locked(self, facts: dict[str, Any], data: io.BytesIO) -> None:
        begin = facts["fingerprint"][:16]
        path = self.folder / f"{begin}-{secrets.token_hex(8)}{FACTS}"
        for older in entries(self.folder, begin):
            same = (older.fingerprint, older.owner) == (facts["fingerprint"], facts["owner"])
            if same and older.begins(facts["outline"]["target.read"], facts["ends"]):
                remove(older.path)
        self._make_room(data.getbuffer().nbytes)
        draft = self.folder / f".{path.stem}{ARRAYS}"
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(data.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        facts["sha256"] = hashlib.sha256(data.getbuffer()).hexdigest()
        draft.replace(path.with_suffix(ARRAYS))
        jsonfile.replace_text(path, json.dumps({"sha256": digest(facts), "entry": facts}))

    def _make_room(self, nbytes: int) -> None:
        """Remove the least recently used entries until `nbytes` more are within the limit."""
        kept = sorted((_last_used(path), path) for path in facts_files(self.folder))
        sizes = {path: _size(path) + _size(path.with_suffix(ARRAYS)) for _, path in kept}
        while kept and sum(sizes.values()) + nbytes > self.most_bytes:
            _, path = kept.pop(0)
            del sizes[path]
            remove(path)

    def _remove_unfinished(self) -> None:
        """What killed writers left; only under the lock, which every writer holds."""
        for path in self.folder.iterdir():
            whole = path.suffix == FACTS or (path.suffix == ARRAYS and path.with_suffix(FACTS).exists())
            if path.name[0] == "." or not whole:
                path.unlink(missing_ok=True)

    def _by_reach(self, fingerprint: str, prompt: Sequence[int]) -> list[tuple[int, Entry]]:
        """(tokens of `prompt` that an entry spares, the entry), the best first, the smallest of equal ones.

        The last token of a prompt always is read.
        """
        self._known = {one.path: one for one in entries(self.folder, fingerprint[:16], self._known)}
        same = [one for one in self._known.values() if one.fingerprint == fingerprint]
        found = [(one.reach(min(common_prefix(one.ids, prompt), len(prompt) - 1)), one) for one in same]
        return sorted(found, key=lambda one: (-one[0], len(one[1].ids)))


def _unwritten(why: str) -> SpecdecError:
    return SpecdecError(f"what was read is not kept on disk: {why}", "specdec doctor shows what is kept")


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _last_used(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0
