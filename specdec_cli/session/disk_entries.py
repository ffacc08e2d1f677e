"""The files of conversations that were read, by their headers (pure): no model and no mlx is needed to list them.

An entry is a safetensors file: a slot's arrays, and in its header the ids that were read, where a rollback can return
to, and a fingerprint of all that the numbers depend on. Its name ends in the digest of its bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import platformdirs

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, untrusted
from specdec_cli.core.jsonfile import NotJson
from specdec_cli.core.readfile import open_file
from specdec_cli.core.safetensors import read_header

# What `specdec rm` calls all of them.
DISK_CACHE = "disk-cache"
# Of what is written: other versions are not read.
SCHEMA = 1
MOST_BYTES, FREE_SHARE = 8_000_000_000, 0.02
# An entry's name has so much of its fingerprint; the one that is being written has another.
BEGINNING, ENDING, UNFINISHED = 16, ".safetensors", ".unfinished"


def disk_cache_folder() -> Path:
    """Where conversations that were read are kept."""
    return platformdirs.user_cache_path("specdec") / "conversations"


def usual_bytes() -> int:
    """What may be kept where nobody says: 8 GB, on a small disk 2 % of what is free."""
    folder = disk_cache_folder()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return min(MOST_BYTES, round(shutil.disk_usage(there).free * FREE_SHARE))


def fingerprint(facts: Mapping[str, str]) -> str:
    """Of everything by name that the numbers in a cache depend on."""
    return hashlib.sha256(json.dumps([SCHEMA, sorted(facts.items())]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation on disk, of the chat `owner` if of any, which can return to the lengths `ends`, None being all.

    `outline` is the slot's contents without its arrays.
    """

    fingerprint: str
    owner: str
    ends: Sequence[int] | None
    outline: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Entry:
        """From the header alone. Raises: SpecdecError, NotJson or a lookup's error for one that is not whole."""
        said = read_header(path).metadata
        if said["sha256"] != _sha256(said["entry"].encode()):
            raise NotJson("it was altered")
        entry = cls(**jsonfile.parse_object(said["entry"]))
        if not entry.ids:
            raise NotJson("it holds no tokens")
        return entry

    def metadata(self) -> dict[str, str]:
        """What its header says of it."""
        text = json.dumps(asdict(self))
        return {"entry": text, "sha256": _sha256(text.encode())}

    def name(self, digest: str) -> str:
        """Of its file, whose bytes have this sha256."""
        return f"{self.fingerprint[:BEGINNING]}-{digest}{ENDING}"

    @property
    def ids(self) -> Sequence[int]:
        """What its target has read."""
        return cast(Sequence[int], self.outline["target.read"])

    def reach(self, shared: int) -> int:
        """Where a conversation that shares its first `shared` tokens goes on from."""
        return shared if self.ends is None else max((end for end in self.ends if end <= shared), default=0)

    def is_in(self, other: Entry) -> bool:
        """Whether `other` holds all that this one does, of the same models for the same chat."""
        same = (self.fingerprint, self.owner) == (other.fingerprint, other.owner)
        inside = other.ends is None or set(self.ends or ()) <= set(other.ends)
        return same and inside and list(self.ids) == list(other.ids[: len(self.ids)])


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def require_whole(path: Path) -> None:
    """Raises: OSError, NotJson where an entry's file is not what was written."""
    with open_file(path) as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != path.stem.rpartition("-")[2]:
            raise NotJson("it was altered")


def entry_files(folder: Path, fingerprint: str = "") -> list[Path]:
    """Those of all entries, or of those of a fingerprint and of the few whose fingerprints begin as that does."""
    return [path for path in folder.glob(f"{fingerprint[:BEGINNING]}*{ENDING}") if path.name[0] != "."]


def entries(folder: Path, fingerprint: str = "", known: Mapping[Path, Entry] | None = None) -> dict[Path, Entry]:
    """The whole ones by their `entry_files`, each read unless it is `known`; what is damaged is removed."""
    found = dict[Path, Entry]()
    for path in entry_files(folder, fingerprint):
        try:
            with untrusted(lost):
                found[path] = (known or {}).get(path) or Entry.read(path)
        except SpecdecError:
            remove(path)
    return found


def remove(path: Path) -> None:
    """Remove an entry."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def held_bytes() -> int:
    """Of all files in the folder."""
    folder = disk_cache_folder()
    return sum(file.lstat().st_size for file in folder.iterdir()) if folder.is_dir() else 0


def remove_all() -> None:
    """Remove every entry. Who is writing one is not waited for, and leaves it out. Raises: OSError."""
    folder = disk_cache_folder()
    if folder.is_dir():
        (folder / UNFINISHED).unlink(missing_ok=True)  # before the others, of which it may become one
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        with suppress(OSError):  # somebody writes anew
            folder.rmdir()


def remove_chats(owners: Collection[str]) -> None:
    """Remove what belongs to these chats."""
    for path, entry in entries(disk_cache_folder()).items():
        if entry.owner in owners:
            remove(path)


def lost(why: str) -> SpecdecError:
    """What was read is not on disk, or not as it was written."""
    return SpecdecError(f"what was read is not kept on disk: {why}", "specdec doctor shows what is kept")
