"""One conversation in a file of its own. Law: it is believed only for the very models and versions that wrote it.

The header says everything that a prompt is compared with, so the caches are read only for one that goes on with them.
Lengths are in tokens, sizes in bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_cli.engine.array_file import ArrayFile, Unusable, file_bytes, write
from specdec_cli.engine.array_tree import ArrayNames
from specdec_cli.engine.cache.rollback import common_prefix
from specdec_cli.session.slot import TOKENS, Slot

PART = ".part"
"""Added to the name of a file that is being written."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What slots know of a conversation beside its caches; as in `slots.Kept`."""

    key: str | None = None
    system_tokens: int = 0
    goes_on_at: int = 0
    prefix_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A conversation in `file`. A rollback reaches every length from `floor` on, and the `places` below it."""

    file: ArrayFile
    tokens: Sequence[int]
    floor: int
    places: tuple[int, ...]
    facts: Facts

    def reach(self, prompt: Sequence[int]) -> int:
        """Tokens of `prompt` that need not be read again, as `Slot.reach` of what is in the file."""
        length = min(common_prefix(self.tokens, prompt), len(prompt) - 1)
        return length if length >= self.floor else max((at for at in self.places if at <= length), default=0)

    def restore(self, slot: Slot) -> None:
        """Fill `slot`, which is empty. Raises: Unusable, OSError, and leaves it empty."""
        slot.restore(self.file.facts.get("slot"), self.file)


def fingerprint_in(file: ArrayFile) -> object:
    """By whom it was written."""
    return file.facts.get("fingerprint")


def entry_of(file: ArrayFile) -> Entry:
    """Raises: Unusable, OSError."""
    values = file.facts
    try:
        tokens, floor, places = file.ids(TOKENS), values["floor"], tuple(values["places"])
        facts = Facts(**values["facts"])
    except (KeyError, TypeError) as error:
        raise Unusable("it holds no conversation") from error
    lengths = (floor, *places, facts.system_tokens, facts.goes_on_at)
    if any(type(length) is not int or length < 0 for length in lengths) or max(floor, *places, 0) > len(tokens):
        raise Unusable("a length in it is none")
    return Entry(file, tokens, floor, places, facts)


class Draft:
    """A file to be written: nothing may be read into its slot until it is done or given up."""

    def __init__(self, slot: Slot, facts: Facts, fingerprint: str) -> None:
        """Raises: Unusable."""
        names = ArrayNames()
        tree = slot.stored(names)
        floor, places = slot.places
        self._values: dict[str, Any] = {
            "fingerprint": fingerprint,
            "floor": floor,
            "places": places,
            "facts": {name: getattr(facts, name) for name in Facts.__slots__},
            "slot": tree,
        }
        self._arrays = names.arrays
        self.nbytes = file_bytes(self._values, self._arrays)

    def written(self, path: Path) -> Iterator[None]:
        """Write it beside `path`, a piece a step, and put it there when it is whole; readable by its owner alone.

        Given up on the way it leaves nothing. Raises: Unusable, OSError.
        """
        beside = path.with_name(path.name + PART)
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                yield from write(file, self._values, self._arrays)
            beside.replace(path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
