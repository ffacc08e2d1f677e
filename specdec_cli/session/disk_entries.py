"""The files of conversations that were read, without their arrays (pure): no model and no mlx is needed to list them.

An entry is two files: a slot's arrays, as mlx writes them, and beside them JSON of the ids that were read, of where a
rollback can return to, and of all that the numbers depend on. The JSON is written last and removed first, so arrays
without one are no entry.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import platformdirs

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import SpecdecError, untrusted
from specdec_cli.core.jsonfile import NotJson
from specdec_cli.core.readfile import open_file

# What `specdec rm` calls all of them.
DISK_CACHE = "disk-cache"
# Of what is written: other versions are not read.
SCHEMA = 1
MOST_BYTES, FREE_SHARE = 8_000_000_000, 0.02
ARRAYS, FACTS = ".safetensors", ".json"


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

    `outline` is the rest of the slot's contents; `sha256` is that of the file of the arrays.
    """

    path: Path
    fingerprint: str
    owner: str
    ends: Sequence[int] | None
    outline: Any
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Entry:
        """Raises: OSError, NotJson or a lookup's error for a file that is not whole."""
        values = jsonfile.read_object(path)
        facts = values["entry"]
        if values["sha256"] != digest(facts):
            raise NotJson("it was altered")
        entry = cls(path, **facts)
        if not entry.ids:
            raise NotJson("it holds no tokens")
        return entry

    @property
    def ids(self) -> Sequence[int]:
        """What its target has read."""
        return cast(Sequence[int], self.outline["target.read"])

    @property
    def arrays(self) -> Path:
        """The file of its arrays."""
        return self.path.with_suffix(ARRAYS)

    def require_arrays(self) -> None:
        """Raises: OSError, NotJson where they are not what was written."""
        with open_file(self.arrays) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                raise NotJson("its arrays were altered")

    def reach(self, shared: int) -> int:
        """Where a conversation that shares its first `shared` tokens goes on from."""
        return shared if self.ends is None else max((end for end in self.ends if end <= shared), default=0)

    def begins(self, ids: Sequence[int], ends: Sequence[int] | None) -> bool:
        """Whether a conversation of these `ids` and `ends` holds all that this one does."""
        inside = ends is None or set(self.ends or ()) <= set(ends)
        return inside and list(self.ids) == list(ids[: len(self.ids)])


def digest(facts: Mapping[str, Any]) -> str:
    """sha256 of facts that are written as JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def facts_files(folder: Path, begin: str = "") -> list[Path]:
    """The JSON of every entry whose name begins so."""
    return [path for path in folder.glob(f"{begin}*{FACTS}") if path.name[0] != "."]


def entries(folder: Path, begin: str = "", known: Mapping[Path, Entry] | None = None) -> Iterator[Entry]:
    """Every whole entry whose name begins so, each read unless it is `known`; what is damaged is removed."""
    for path in facts_files(folder, begin):
        try:
            with untrusted(damaged):
                yield (known or {}).get(path) or Entry.read(path)
        except SpecdecError:
            remove(path)


def remove(path: Path) -> None:
    """Remove the entry whose JSON this is."""
    for file in (path, path.with_suffix(ARRAYS)):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def held_bytes() -> int:
    """Of all files in the folder."""
    folder = disk_cache_folder()
    return sum(file.lstat().st_size for file in folder.iterdir()) if folder.is_dir() else 0


def remove_all() -> None:
    """Remove every entry, and what killed writers left."""
    folder = disk_cache_folder()
    if folder.is_dir():
        with jsonfile.locked(folder):
            shutil.rmtree(folder)


def remove_chats(owners: Collection[str]) -> None:
    """Remove what belongs to these chats."""
    for entry in entries(disk_cache_folder()):
        if entry.owner in owners:
            remove(entry.path)


def damaged(why: str) -> SpecdecError:
    """An entry that is not what was written."""
    return SpecdecError(f"an entry is damaged: {why}", "nothing is lost: it is read anew")
