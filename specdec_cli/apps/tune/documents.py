"""The user's text as documents: read, told apart from near-duplicates, and split.

Law: a document lies wholly in one part, and which one depends on the seed and the documents alone. None that is watched
or learned from shares more than SHARED of its runs of tokens with those that are judged.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from random import Random
from typing import TypeVar

from specdec_cli.core import jsonfile
from specdec_cli.core.errors import UsageError
from specdec_cli.core.format import count
from specdec_cli.core.readfile import open_file
from specdec_cli.core.textfile import decode_text, in_wide_units

# Characters of a document that count, bytes that hold as many in every encoding, files of a folder that are read.
LONGEST, LONGEST_BYTES, MOST_FILES = 20_000, 80_000, 4000
# Bytes of a line that may be a record, and the keys under which a record's text is; without them all its texts count.
LONGEST_LINE, SAYING = 200 * LONGEST_BYTES, ("messages", "conversations", "text", "content", "value")
# Tokens of a piece and of what is said after it.
PIECE, SAID = 64, 64
# Documents that a split needs: a quarter is judged, an eighth is watched while training.
FEWEST, MOST_JUDGED, MOST_WATCHED = 16, 48, 16
RUN, SHARED = 24, 0.1
T = TypeVar("T")
SOME = "name some: specdec tune --text FOLDER --text FILE …, or your chats: --chats"
MORE = "name more: specdec tune --text FOLDER --text FILE …"


@dataclass(frozen=True, slots=True)
class Document:
    """A text by its unique `name`, as ids."""

    name: str
    ids: tuple[int, ...]

    def pieces(self, number: int, seed: int) -> list[list[int]]:
        """Up to `number` stretches of PIECE tokens, from places that depend on seed and name."""
        places = range(len(self.ids) - PIECE + 1)
        drawn = Random(f"{seed} {self.name}").sample(places, min(number, len(places)))
        return [list(self.ids[at : at + PIECE]) for at in drawn]


def in_turns(lists: Iterable[Sequence[T]]) -> list[T]:
    """The first of each, the second of each, and so on: where time is little, something of each is heard."""
    return [one for turn in zip_longest(*lists) for one in turn if one is not None]


@dataclass(frozen=True, slots=True)
class Split:
    """Documents that the result is `judged` on, that are `watched` while training, and that are learned from.

    `dropped` were too much like a judged one.
    """

    judged: tuple[Document, ...]
    watched: tuple[Document, ...]
    trained: tuple[Document, ...]
    dropped: tuple[str, ...] = ()


def read_texts(paths: Sequence[Path], tell: Callable[[str], None]) -> dict[str, str]:
    """Text by name, of files and of all in folders, of JSON Lines by record.

    What is no text in a folder is left out, and `tell` hears of it.

    Raises: UsageError for a path that is missing or cannot be read, and for a file that is not UTF-8.
    """
    found: dict[str, str] = {}
    left_out = 0
    for path in paths:
        if not path.exists():
            raise UsageError(f"--text {path} does not exist", "name files, or folders of them")
        if not (path.is_file() or path.is_dir()):  # a device or a pipe may have no end
            raise UsageError(f"--text {path} is neither a file nor a folder", "name files, or folders of them")
        inside = list(islice(_files_in(path), MOST_FILES + 1)) if path.is_dir() else [path]
        if len(inside) > MOST_FILES:
            tell(f"there are more than {MOST_FILES} files in {path}: the first {MOST_FILES} are read")
        for file in inside[:MOST_FILES]:
            try:
                name, text = str(file.resolve()), _beginning(file)
                records = [*islice(_records(file), MOST_FILES + 1)]
                texts = {f"{name}:{number}": said for number, said in records[:MOST_FILES] if said}
                found |= texts if len(texts) > 1 else {name: text}
                if 1 < len(texts) < len(records):
                    tell(f"{count(len(texts), 'record')} of {file} are read, and others left out")
            except UnicodeDecodeError as error:
                if file == path:
                    what = f"--text {path} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
                    raise UsageError(what, f"convert it: iconv -f latin1 -t utf-8 {shlex.quote(str(path))}") from error
                left_out += 1
            except OSError as error:
                if file == path:
                    what = f"--text {path} cannot be read: {error.strerror}"
                    raise UsageError(what, "name files of your own") from error
                left_out += 1
    if left_out:
        tell(f"{count(left_out, 'file')} left out: not UTF-8 text, or unreadable")
    return found


def _files_in(folder: Path) -> Iterator[Path]:
    """All that are not hidden, and in no hidden folder or one of Python's caches."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        files = (Path(root) / name for name in sorted(names) if not name.startswith("."))
        yield from (file for file in files if file.is_file())


def _beginning(file: Path) -> str:
    """Of its text. Raises: UnicodeDecodeError, OSError."""
    with open_file(file) as stream:
        data = stream.read(LONGEST_BYTES)
        return decode_text(data, cut=bool(stream.read(1)))[:LONGEST]


def _records(file: Path) -> Iterator[tuple[int, str]]:
    """(its line, the beginning of its text) of every record of JSON Lines; nothing of a file that begins otherwise.

    A text is empty where a line is damaged, or has none. Raises: UnicodeDecodeError, OSError.
    """
    with open_file(file) as stream:
        lines: Iterable[bytes] = iter(partial(stream.readline, LONGEST_LINE), b"")
        begins_with = stream.read(4)
        stream.seek(0)
        if in_wide_units(begins_with):
            lines = decode_text(stream.read(MOST_FILES * LONGEST_BYTES), cut=True).encode().splitlines()
        begins = True
        for number, line in enumerate(lines, 1):
            if line.strip():
                said = _said(line)[:LONGEST]
                if begins and not said:
                    return
                begins = False
                yield number, said


def _said(line: bytes) -> str:
    """What a record says; empty where it is none."""
    try:
        return "\n\n".join(_texts(jsonfile.parse_object(line)))
    except (jsonfile.NotJson, RecursionError):
        return ""


def _texts(value: object) -> Iterator[str]:
    """The texts in a record of mlx-lm's forms (text; prompt and completion; messages) or of others."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(next((value[key] for key in SAYING if key in value), [*value.values()]))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def split(documents: Iterable[Document], seed: int) -> Split:
    """Raises: UsageError where too few are long enough, with both numbers."""
    known = {document.ids: document for document in sorted(documents, key=lambda one: one.name)}
    long = sorted((one for one in known.values() if len(one.ids) > PIECE), key=lambda one: one.name)
    if len(long) < FEWEST:
        short = f", and {len(known) - len(long)} more are shorter" if len(known) > len(long) else ""
        what = f"{count(len(long), 'document')} of more than {PIECE} tokens{short}; {FEWEST} are needed"
        raise UsageError(f"too little text: {what}", MORE)
    Random(seed).shuffle(long)
    first = min(len(long) // 4, MOST_JUDGED)
    judged, others = long[:first], long[first:]
    seen = {run for document in judged for run in _runs(document)}
    near = {one.name for one in others if _share(one, seen) > SHARED}
    fresh = [one for one in others if one.name not in near]
    second = min(len(long) // 8, MOST_WATCHED)
    if len(fresh) <= second:
        raise UsageError(f"all {len(others)} documents to learn from repeat the {len(judged)} to be judged on", MORE)
    return Split(tuple(judged), tuple(fresh[:second]), tuple(fresh[second:]), tuple(sorted(near)))


def _runs(document: Document) -> set[tuple[int, ...]]:
    """Every stretch of RUN tokens."""
    return {document.ids[at : at + RUN] for at in range(max(len(document.ids) - RUN + 1, 1))}


def _share(document: Document, seen: set[tuple[int, ...]]) -> float:
    """Of its runs, those that were `seen`."""
    runs = _runs(document)
    return len(runs & seen) / len(runs)
